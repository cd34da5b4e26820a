// The output of the demo: one line for each step, with its time and its progress.
export interface Show {
  say(text: string): void;
  /** Runs one step; `note` shows what is going on in it, `work` returns what came of it. A failure is thrown as StepFailed. */
  step<T>(name: string, work: (note: (text: string) => void) => Promise<Outcome<T>>): Promise<T>;
  /** Steps that still run are not shown any more. */
  endSteps(): void;
}

export interface Outcome<T> {
  value: T;
  /** The result in a few words. */
  result: string;
}

export class StepFailed extends Error {
  readonly step: string;

  constructor(step: string, cause: unknown) {
    super(cause instanceof Error ? cause.message : String(cause), { cause });
    this.step = step;
  }
}

const NAME_WIDTH = 22;
const INDENT = ' '.repeat(12);

/** On a terminal a running step is one line that changes; elsewhere each note is a line of its own. */
export function openShow(out: NodeJS.WriteStream): Show {
  const startedMs = performance.now();
  const time = (): string => `${((performance.now() - startedMs) / 1000).toFixed(1).padStart(6)} s`;
  let ended = false;
  const line = (text: string): void => void out.write(`${text}\n`);
  const passing = (text: string): void => {
    if (ended) return;
    if (!out.isTTY) return line(`${INDENT}${text}`);
    // A terminal that does not say how wide it is says 0.
    out.write(`\r\u001B[K${`${INDENT}${text}`.slice(0, (out.columns || 80) - 1)}`);
  };
  const settle = (): void => {
    if (out.isTTY) out.write('\r\u001B[K');
  };
  const settled = (text: string): void => {
    if (ended) return;
    settle();
    line(`${time()}  ${text}`);
  };
  return {
    say: line,
    endSteps: () => {
      settle();
      ended = true;
    },
    step: async (name, work) => {
      if (out.isTTY) passing(`${name} ...`);
      try {
        const { value, result } = await work(passing);
        settled(`\u2713 ${name.padEnd(NAME_WIDTH)}  ${result.replaceAll('\n', `\n${INDENT}`)}`);
        return value;
      } catch (error) {
        settled(`\u2717 ${name}`);
        throw new StepFailed(name, error);
      }
    },
  };
}
