// Shows the request of a screen as CLI and curl lines, and texts that people copy in boxes.
import { useEffect, useId, useState } from 'preact/hooks';
import type { Method } from '../core/api.ts';
import { quoted } from '../core/format.ts';

export interface Same {
  /** The `svc` line. For a request that changes something, it has the current values of the form. */
  cli: string;
  /** The request of the screen. `path` begins with `/v1` or `/admin/v1`. For the latter, the line uses the control plane's admin socket. */
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
/** Path of the admin socket in an installation from the packages. */
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

/** A `curl` line that works in a shell. It takes the address of the service and the key from the shell's environment. */
function curlLine({ method = 'GET', path, body, form = [] }: Same['curl']): string {
  const parts = ['curl'];
  if (method !== 'GET') parts.push('-X', method);
  if (path.startsWith('/admin/v1/')) {
    // API keys have no access to the operator's routes, so this line uses the socket.
    parts.push(`--unix-socket ${SOCKET} "http://localhost${path.replace('/v1', '')}"`);
  } else {
    // SVC_BASE_URL ends with `/v1` already.
    parts.push(`"$SVC_BASE_URL${path.replace(/^\/v1/, '')}"`, '-H "Authorization: Bearer $SVC_API_KEY"');
    if (method === 'POST') parts.push('-H "Idempotency-Key: $(uuidgen)"');
  }
  if (body !== undefined) parts.push("-H 'Content-Type: application/json'", `-d ${quoted(JSON.stringify(body))}`);
  for (const part of form) parts.push('-F', quoted(part));
  return parts.join(' ');
}
