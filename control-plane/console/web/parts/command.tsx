// The same as a command: the CLI and curl lines of a screen, and boxes for what is made to be copied.
import { useEffect, useId, useState } from 'preact/hooks';
import type { Method } from '../core/api.ts';

export interface Same {
  /** The `svc` line. A line that changes something repeats what the form says now. */
  cli: string;
  /** The request that the screen sends. `path` begins with `/v1`, or with `/admin/v1`, whose line asks the socket of the control plane. */
  curl: {
    method?: Method;
    path: string;
    body?: unknown;
    /** Parts of a form, like `file=@a.jsonl`, in place of a body. */
    form?: readonly string[];
  };
  /** The command stands in a box with line breaks. */
  isLong?: boolean;
}

const COPIED_MS = 2_000;
/** Where the packages have the socket of operators. */
const SOCKET = '/run/svc-control-plane/admin.sock';

export function SameAs({ cli, curl, isLong = false }: Same) {
  const [kind, setKind] = useState<'CLI' | 'curl'>('CLI');
  const name = useId();
  const line = curlLine(curl);
  return (
    <div class={isLong ? 'cmd long' : 'cmd'} role="group" aria-label="The same as a command">
      <span class="seg">
        {(['CLI', 'curl'] as const).map((each) => (
          <label key={each}>
            <input type="radio" name={name} checked={kind === each} onChange={() => setKind(each)} />
            {each}
          </label>
        ))}
      </span>
      <code tabIndex={0}>{cli}</code>
      <code tabIndex={0}>{line}</code>
      <CopyButton text={kind === 'CLI' ? cli : line} what="the command" />
    </div>
  );
}

/** An address, a key or a line, with a button that copies it. */
export function Copy({ text, what }: { text: string; what: string }) {
  return (
    <div class="copy">
      <code tabIndex={0}>{text}</code>
      <CopyButton text={text} what={what} />
    </div>
  );
}

function CopyButton({ text, what }: { text: string; what: string }) {
  const [isCopied, setCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return undefined;
    const timer = setTimeout(() => setCopied(false), COPIED_MS);
    return () => clearTimeout(timer);
  }, [isCopied]);
  const copy = () => void navigator.clipboard.writeText(text).then(() => setCopied(true));
  return (
    <button class="btn bare" type="button" aria-label={`Copy ${what}`} onClick={copy}>
      {isCopied ? 'Copied' : 'Copy'}
      <span class="sr" role="status">
        {isCopied ? 'Copied' : ''}
      </span>
    </button>
  );
}

/** A line that works in a shell: the address of the service and the key come from its environment. */
function curlLine({ method = 'GET', path, body, form = [] }: Same['curl']): string {
  const parts = ['curl'];
  if (method !== 'GET') parts.push('-X', method);
  if (path.startsWith('/admin/v1/')) {
    // A key of the API opens no route of operators.
    parts.push(`--unix-socket ${SOCKET} "http://localhost${path.replace('/v1', '')}"`);
  } else {
    // The address of the environment ends with the version.
    parts.push(`"$SVC_BASE_URL${path.replace(/^\/v1/, '')}"`, '-H "Authorization: Bearer $SVC_API_KEY"');
    if (method === 'POST') parts.push('-H "Idempotency-Key: $(uuidgen)"');
  }
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  for (const part of form) parts.push('-F', quoted(part));
  return parts.join(' ');
}

/** One word of a shell, whatever is in it. */
export function quoted(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
