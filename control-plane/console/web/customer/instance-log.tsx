// The log of the container, live.
import { useEffect, useRef, useState } from 'preact/hooks';
import type { Instance } from '../../../../shared/api/instance.ts';
import { LOG_LINES_MAX } from '../../../../shared/limits.ts';
import { ApiError } from '../core/api.ts';
import { count, plural, quoted, time } from '../core/format.ts';
import { Find, Segments } from '../parts/choosing.tsx';
import { SameAs } from '../parts/command.tsx';
import { Card, Problem } from '../parts/layout.tsx';
import { follow, type Line } from './follow-log.ts';

const TAILS = [100, 500, LOG_LINES_MAX] as const;
const LINES_KEPT = 2_000;
const DRAW_MS = 250;
/** A host keeps the log as long as it has the container. */
const HAS_LOG: readonly Instance['status'][] = ['running', 'unreachable', 'stopping'];

/** The end of the log of a batch job is kept, whatever has ended it, except for a deletion. */
const isKept = ({ auto_terminate_on_exit: endsOnExit, main_exit: exit, ready_at: readyAt }: Instance): boolean =>
  endsOnExit === true && (exit !== undefined || readyAt !== null);

export function Log({ instance }: { instance: Instance }) {
  const { id, name, status } = instance;
  const [tail, setTail] = useState<number>(TAILS[0]);
  const [text, setText] = useState('');
  const hasLog = HAS_LOG.includes(status) || isKept(instance);
  const { lines, error, retry } = useLog(id, tail, hasLog);
  const wanted = text.trim().toLowerCase();
  const shown = wanted === '' ? lines : lines.filter(({ line }) => line.toLowerCase().includes(wanted));
  const ref = `${quoted(name ?? id)}`;
  return (
    <Card
      title="Log"
      note={wanted === '' ? plural(lines.length, 'line') : `${count(shown.length)} of ${plural(lines.length, 'line')}`}
      footer={
        <SameAs
          cli={`svc instance logs ${ref} --follow`}
          curl={{ path: `/v1/instances/${id}/logs?tail=${tail}&follow=true` }}
        />
      }
    >
      {hasLog ? (
        <div class="pad stack tight">
          <div class="row">
            <Find label="Search the log" placeholder="Search the log" value={text} onValue={setText} />
            <Segments
              label="Last lines"
              value={String(tail)}
              options={TAILS.map((each) => [String(each), count(each)] as const)}
              onValue={(each) => setTail(Number(each))}
            />
          </div>
          {error !== undefined && <Problem error={error} retry={retry} />}
          <Lines lines={shown} />
        </div>
      ) : (
        <p class="pad quiet">The log can be read while the instance runs.</p>
      )}
    </Card>
  );
}

/** The lines of the log. If the reader has scrolled to the end, the view stays at the end when new lines arrive. */
function Lines({ lines }: { lines: readonly Line[] }) {
  const ref = useRef<HTMLPreElement>(null);
  const isAtEnd = useRef(true);
  useEffect(() => {
    const place = ref.current;
    if (place !== null && isAtEnd.current) place.scrollTop = place.scrollHeight;
  }, [lines]);
  const onScroll = ({ currentTarget: place }: { currentTarget: HTMLPreElement }): void => {
    isAtEnd.current = place.scrollTop + place.clientHeight >= place.scrollHeight - 4;
  };
  return (
    <pre class="lines" tabIndex={0} role="log" aria-label="Log of the container" ref={ref} onScroll={onScroll}>
      {lines.length === 0 ? 'No line.' : lines.map(({ at, line }) => `${time(at)}  ${line}`).join('\n')}
    </pre>
  );
}

interface Following {
  lines: readonly Line[];
  error: ApiError | undefined;
  retry(): void;
}

function useLog(id: string, tail: number, hasLog: boolean): Following {
  const [lines, setLines] = useState<readonly Line[]>([]);
  const [error, setError] = useState<ApiError>();
  const [attempt, setAttempt] = useState(0);
  useEffect(() => {
    if (!hasLog) return undefined;
    const stop = new AbortController();
    const taken: Line[] = [];
    // Many lines may come at once, so they are drawn a few times a second.
    const timer = setInterval(() => {
      if (taken.length > 0) setLines((before) => [...before, ...taken.splice(0)].slice(-LINES_KEPT));
    }, DRAW_MS);
    setLines([]);
    setError(undefined);
    void follow(id, { tail, signal: stop.signal, take: (line) => taken.push(line) }).catch((failure: unknown) => {
      if (!(failure instanceof ApiError)) throw failure;
      setError(failure);
    });
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [id, tail, hasLog, attempt]);
  return { lines, error, retry: () => setAttempt(attempt + 1) };
}
