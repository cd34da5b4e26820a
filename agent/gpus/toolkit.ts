// Reads the version of the NVIDIA Container Toolkit, which puts GPUs into this host's containers, from its own programs.
import { run } from '../host/run.ts';

const ASK_MS_MAX = 10_000;
const VERSION_CHARS_MAX = 64;
/** The first of these that is installed is asked. */
const PROGRAMS = ['nvidia-ctk', 'nvidia-container-cli'] as const;

/** The version; empty if none is installed, or none reports a version. */
export async function readToolkitVersion(programs: readonly string[] = PROGRAMS): Promise<string> {
  for (const program of programs) {
    const answer = await run([program, '--version'], { timeoutMs: ASK_MS_MAX }).catch(() => undefined);
    const version = answer?.code === 0 ? parseToolkitVersion(answer.stdout) : '';
    if (version !== '') return version;
  }
  return '';
}

/** `NVIDIA Container Toolkit CLI version 1.17.8` or `cli-version: 1.17.8`, among other lines. */
export function parseToolkitVersion(text: string): string {
  return (/\bversion:?\s+v?(\d+\.\d+\.\d+\S*)/.exec(text)?.[1] ?? '').slice(0, VERSION_CHARS_MAX);
}
