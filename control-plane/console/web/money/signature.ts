// Checks the signature of a webhook in the browser. The secret is sent nowhere.

/** A receiver refuses a signature whose time differs from its own clock by more than this. */
const AGE_S_MAX = 300;

export interface Signed {
  /** The body as the receiver got it, byte for byte. */
  body: string;
  /** The value of `Svc-Signature`. */
  header: string;
  /** The 64 characters of the secret. They are the key as text; they must not be decoded from hex. */
  secret: string;
}

export interface Verdict {
  isValid: boolean;
  text: string;
}

/** Whether a receiver must accept the delivery; if not, with the reason. */
export async function checkSignature({ body, header, secret }: Signed, nowMs: number): Promise<Verdict> {
  const parts = header
    .trim()
    .replace(/^svc-signature:\s*/i, '')
    .split(',')
    .map((part) => part.trim());
  const t = parts.find((part) => /^t=\d+$/.test(part))?.slice(2);
  if (t === undefined) return wrong('The header has no t=<unix seconds>.');
  const signatures = parts.filter((part) => part.startsWith('v1=')).map((part) => part.slice(3));
  if (signatures.length === 0) return wrong('The header has no v1=<hex>.');
  if (!/^[0-9a-f]{64}$/.test(secret.trim())) return wrong('The secret must be 64 characters, 0 to 9 and a to f.');
  const expected = await hmacHex(secret.trim(), `${t}.${body}`);
  if (!signatures.includes(expected))
    return wrong(
      `The body and the secret give v1=${expected}, which the header does not have. The body must be as it came, before it is parsed.`,
    );
  const ageS = Math.round(nowMs / 1_000 - Number(t));
  if (Math.abs(ageS) > AGE_S_MAX)
    return {
      isValid: true,
      text: `The signature is right. It is ${Math.abs(ageS)} s ${ageS > 0 ? 'old' : 'ahead'}: a receiver refuses more than ${AGE_S_MAX} s.`,
    };
  return { isValid: true, text: `The signature is right, and its time is ${Math.abs(ageS)} s away.` };
}

function wrong(text: string): Verdict {
  return { isValid: false, text };
}

async function hmacHex(secret: string, text: string): Promise<string> {
  const encoder = new TextEncoder();
  const algorithm = { name: 'HMAC', hash: 'SHA-256' };
  const key = await crypto.subtle.importKey('raw', encoder.encode(secret), algorithm, false, ['sign']);
  const mac = new Uint8Array(await crypto.subtle.sign('HMAC', key, encoder.encode(text)));
  return [...mac].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
