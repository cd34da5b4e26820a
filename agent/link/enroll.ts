// Enrolment: this host sends its one-time token and its public key once, and is a machine of the fleet from then on.
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { EnrollResponse, type EnrollRequest, type Inventory } from '../../shared/protocol/inventory.ts';
import { ENROLL_PATH } from '../../shared/protocol/link.ts';
import { loadIdentity, storeIdentity } from './identity.ts';
import { clearTextHost } from '../../shared/client-network.ts';
import { codeOf } from '../../shared/errors.ts';

export interface EnrollOptions {
  stateDir: string;
  /** `https://host[:port]`. Plain http is allowed to this machine itself, and to others only with `allowHttp`. */
  url: string;
  allowHttp: boolean;
  token: string;
  ca: string | undefined;
  inventory: Inventory;
}

const ENROLL_MS_MAX = 30_000;
const ANSWER_BYTES_MAX = 256 * 1024;

/**
 * Enrols and stores the result; resolves with the machine id. The key is on disk before the call, so a repeat after any failure is safe.
 * @throws Error that says what to do; if the control plane refuses, with the words of the control plane
 */
export async function enroll(options: EnrollOptions): Promise<string> {
  const url = addressOf(options);
  const identity = await loadIdentity(options.stateDir);
  const body: EnrollRequest = { token: options.token, public_key: identity.public_key, inventory: options.inventory };
  const answer = await postJson(new URL(ENROLL_PATH, url), JSON.stringify(body), options.ca);
  const enrolled = isFine(answer) ? EnrollResponse.safeParse(jsonOf(answer)).data : undefined;
  if (enrolled === undefined) throw new Error(refusalOf(answer, url));
  const { machine_id, link_path } = enrolled;
  await storeIdentity(options.stateDir, { ...identity, enrolled: { url: url.origin, machine_id, link_path } });
  return machine_id;
}

function addressOf({ url: text, allowHttp }: Pick<EnrollOptions, 'url' | 'allowHttp'>): URL {
  const url = URL.parse(text);
  if (url === null || !['https:', 'http:'].includes(url.protocol)) {
    throw new Error(`--url must be the control plane's address, like https://api.example.com, which ${text} is not`);
  }
  const readableAt = clearTextHost(url);
  if (readableAt !== undefined && !allowHttp) {
    throw new Error(
      `http:// would carry the token, and later the variables and logins of customers, in clear text to ${readableAt}: use https://, or --allow-http on a network that nobody else reads`,
    );
  }
  return url;
}

interface Answer {
  status: number;
  text: string;
}

function postJson(url: URL, body: string, ca: string | undefined): Promise<Answer> {
  const request = url.protocol === 'https:' ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    const call = request(
      url,
      {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) },
        signal: AbortSignal.timeout(ENROLL_MS_MAX),
        ...(ca === undefined ? {} : { ca }),
      },
      (response) => {
        let text = '';
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          text += chunk;
          if (text.length > ANSWER_BYTES_MAX) call.destroy(new Error('the answer is too long'));
        });
        response.once('end', () => resolve({ status: response.statusCode ?? 0, text }));
        response.once('error', reject);
      },
    );
    call.once('error', (error) => reject(new Error(unansweredText(url, error), { cause: error })));
    call.end(body);
  });
}

/** Error codes for a server that does not speak TLS, and for certificates with an unknown authority. */
const NO_TLS = ['EPROTO', 'ERR_SSL_WRONG_VERSION_NUMBER'];
const UNKNOWN_AUTHORITY = [
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
];

function unansweredText({ origin }: URL, error: Error): string {
  const code = codeOf(error) ?? '';
  if (NO_TLS.includes(code)) return `${origin} does not speak TLS: check the port, or use http:// in a test`;
  if (UNKNOWN_AUTHORITY.includes(code)) {
    return `the certificate of ${origin} is of an authority that is not known here (${code}): set tls_ca_file`;
  }
  return `no answer from ${origin}: ${error.message}`;
}

function isFine({ status }: Answer): boolean {
  return status >= 200 && status <= 299;
}

/** Undefined if the text is no JSON. */
function jsonOf({ text }: Answer): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Statuses of a server that knows no enrolment. */
const NOTHING_THERE = [404, 405];

/** The problem document's code and detail, or the beginning of any other answer. */
function refusalOf(answer: Answer, { origin }: URL): string {
  if (isFine(answer) || NOTHING_THERE.includes(answer.status)) {
    return `what answers at ${origin} is no control plane (${answer.status}): check the address and the port of --url`;
  }
  const problem = jsonOf(answer);
  if (typeof problem === 'object' && problem !== null && 'code' in problem) {
    const detail = 'detail' in problem ? `: ${String(problem.detail)}` : '';
    return `enrolment refused (${answer.status} ${String(problem.code)})${detail}`;
  }
  return `enrolment refused (${answer.status}): ${answer.text.slice(0, 200)}`;
}
