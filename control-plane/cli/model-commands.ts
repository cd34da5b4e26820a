// Commands about models: what there is, receipts of calls, files and fine-tuning jobs with one request each; a chat, and the transfer of files.
import type { Command } from 'commander';
import { z } from 'zod';
import { accessSync, constants, createWriteStream, openAsBlob, renameSync, rmSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { PlainCommand } from './plain.ts';
import { type CommonOptions, number, signedIn, type SvcDeps, withCommon, show } from './command.ts';
import { eventsOf } from '../../shared/event-reader.ts';
import { messageOf } from '../../shared/errors.ts';
import { EXIT, interruption, SvcError } from './exit.ts';

const FILE = ['id', 'filename', 'bytes', 'purpose', 'status'] as const;
const JOB = ['id', 'status', 'model', 'training_file', 'svc.cost_usd', 'error.code', 'error.message'] as const;

export const MODEL_COMMANDS: readonly PlainCommand[] = [
  {
    words: ['model', 'list'],
    help: 'list the models with their prices',
    method: 'GET',
    path: '/models',
    rows: 'data',
    columns: ['id', 'modality', 'status', 'context_length', 'max_output_tokens', 'fine_tune_base_model', 'pricing'],
  },
  {
    words: ['model', 'get'],
    help: 'show a model',
    method: 'GET',
    path: '/models/{id}',
    columns: [
      'id',
      'aliases',
      'modality',
      'status',
      'owned_by',
      'context_length',
      'max_output_tokens',
      'supported_parameters',
      'pricing',
      'fine_tunable',
      'fine_tune_base_model',
    ],
    parts: [{ of: 'parameters', columns: ['name', 'type', 'default', 'enum', 'min', 'max'] }],
  },
  {
    words: ['model', 'receipts'],
    help: 'list what calls of models cost, newest first',
    method: 'GET',
    path: '/receipts',
    rows: 'data',
    pages: 'cursor',
    columns: ['id', 'created_at', 'model', 'state', 'prompt_tokens', 'completion_tokens', 'cost'],
  },
  {
    words: ['model', 'totals'],
    help: 'what calls of models used and cost, by day and model',
    method: 'GET',
    path: '/receipts/totals',
    options: [
      { flags: '--bucket <length>', help: 'hour, day or month; day without it', in: 'query', to: 'bucket' },
      {
        flags: '--group-by <member>',
        help: 'model, api_key_id or none; model without it',
        in: 'query',
        to: 'group_by',
      },
      { flags: '--start <time>', help: 'from then on; 30 days ago without it', in: 'query', to: 'start' },
      { flags: '--end <time>', help: 'before then', in: 'query', to: 'end' },
    ],
    rows: 'data',
    pages: 'cursor',
    columns: [
      'bucket_start',
      'model',
      'api_key_id',
      'requests',
      'prompt_tokens',
      'completion_tokens',
      'images',
      'cost',
    ],
    id: 'bucket_start',
    sums: ['complete_until'],
  },
  {
    words: ['file', 'list'],
    help: 'list your files',
    method: 'GET',
    path: '/files',
    rows: 'data',
    pages: 'after',
    columns: FILE,
  },
  { words: ['file', 'get'], help: 'show a file', method: 'GET', path: '/files/{id}', columns: FILE },
  {
    words: ['file', 'delete'],
    help: 'delete a file',
    method: 'DELETE',
    path: '/files/{id}',
    columns: ['id', 'deleted'],
  },
  {
    words: ['file', 'quote'],
    help: 'what fine-tuning with a file would cost',
    method: 'POST',
    path: '/files/{id}/quote',
    rows: 'data',
    columns: ['model', 'estimated_tokens', 'min_usd', 'max_usd', 'min_budget_usd'],
    id: 'model',
  },
  {
    words: ['job', 'list'],
    help: 'list your fine-tuning jobs, newest first',
    method: 'GET',
    path: '/fine_tuning/jobs',
    rows: 'data',
    pages: 'after',
    columns: JOB,
  },
  {
    words: ['job', 'create'],
    help: 'start a fine-tuning job, which never costs more than its budget',
    method: 'POST',
    path: '/fine_tuning/jobs',
    body: { method: { type: 'lora' } },
    options: [
      {
        flags: '--model <model>',
        help: 'a FINE_TUNE_BASE_MODEL of svc model list',
        in: 'body',
        to: 'model',
        required: true,
      },
      { flags: '--file <id>', help: 'the training file', in: 'body', to: 'training_file', required: true },
      { flags: '--method <method>', help: 'lora or qlora; lora without it', in: 'body', to: 'method.type' },
      { flags: '--rank <number>', help: 'rank of the adapter', in: 'body', to: 'method.lora.lora_r', as: 'number' },
      {
        flags: '--budget <usd>',
        help: 'the most that the job may cost; by default what the quote of the file names',
        in: 'body',
        to: 'svc.max_budget_usd',
        as: 'number',
      },
      { flags: '--gpu <types>', help: 'GPU types, the best one first', in: 'body', to: 'svc.gpu_preference' },
      { flags: '--suffix <name>', help: 'a name for the result', in: 'body', to: 'suffix' },
      { flags: '--seed <number>', help: 'the order of the examples', in: 'body', to: 'seed', as: 'number' },
    ],
    columns: JOB,
  },
  {
    words: ['job', 'get'],
    help: 'show a job',
    method: 'GET',
    path: '/fine_tuning/jobs/{id}',
    columns: [...JOB, 'result_files'],
  },
  {
    words: ['job', 'cancel'],
    help: 'stop a job; its last checkpoint is kept',
    method: 'POST',
    path: '/fine_tuning/jobs/{id}/cancel',
    columns: JOB,
  },
  {
    words: ['job', 'events'],
    help: 'what a job has reported, newest first',
    method: 'GET',
    path: '/fine_tuning/jobs/{id}/events',
    rows: 'data',
    pages: 'after',
    columns: ['created_at', 'level', 'message'],
  },
];

interface ChatOptions extends CommonOptions {
  system?: string;
  maxTokens?: number;
}

/** The event of an answer that was refused or broke off (specification 6.5). */
const Failure = z.looseObject({ error: z.object({ code: z.string().catch('failed'), message: z.string() }) });
const Unusable = z.looseObject({ id: z.string(), status: z.literal('error'), status_details: z.string().optional() });
const Chunk = z.looseObject({
  choices: z.array(z.looseObject({ delta: z.looseObject({ content: z.string().nullish() }) })).optional(),
});

/** `svc chat`: asks a model one question, and prints the answer while it arrives. */
export function addChatCommand(program: Command, deps: SvcDeps): void {
  withCommon(program.command('chat <model> [text...]'))
    .description('ask a model; without a text, standard input is the question')
    .option('--system <text>', 'how it should behave')
    .option('--max-tokens <count>', 'the most that it may answer', number)
    .action(async (model: string, words: string[], options: ChatOptions) => {
      const content = words.length > 0 ? words.join(' ') : (await deps.readInput()).trim();
      const messages = [
        ...(options.system === undefined ? [] : [{ role: 'system', content: options.system }]),
        { role: 'user', content },
      ];
      const limit = options.maxTokens === undefined ? {} : { max_tokens: options.maxTokens };
      const response = await signedIn(deps, options).open({
        method: 'POST',
        path: '/chat/completions',
        body: { model, messages, stream: true, ...limit },
        // A repeat would cause a second answer, which must be paid too.
        isOnce: true,
      });
      let isComplete = false;
      let failure: SvcError | undefined;
      for await (const { data } of eventsOf(response)) {
        // The last event is `[DONE]`, which is no JSON.
        isComplete = data === undefined;
        failure ??= failureOf(data, response);
        write(data, options, deps);
      }
      if (options.json !== true) deps.print('\n');
      if (failure !== undefined) throw failure;
      if (!isComplete) throw new SvcError(EXIT.failed, { code: 'stream_broken', message: 'the answer broke off' });
    });
}

/** `svc file upload` and `svc file download`. */
export function addFileCommands(file: Command, deps: SvcDeps): void {
  withCommon(file.command('upload <path>'))
    .description('upload a file, such as examples for fine-tuning')
    .option('--purpose <purpose>', 'what it is for', 'fine-tune')
    .action(async (path: string, options: CommonOptions & { purpose: string }) => {
      const content = await contentOf(path);
      const form = new FormData();
      form.set('purpose', options.purpose);
      form.set('file', content, basename(path));
      deps.tell(`uploading ${content.size} bytes\n`);
      const stored = await signedIn(deps, options).json({ method: 'POST', path: '/files', raw: form, isOnce: true });
      // The exit code says whether the file can be used, also if nobody reads the answer.
      deps.goOnUnread();
      show(deps, options, stored, { columns: FILE, id: 'id' });
      assertUsable(stored);
    });
  withCommon(file.command('download <id>'))
    .description('download a file')
    .requiredOption('-o, --output <path>', 'where to store it')
    .action(async (id: string, options: CommonOptions & { output: string }) => {
      assertNoFolder(options.output);
      const path = `/files/${encodeURIComponent(id)}/content`;
      const response = await signedIn(deps, options).open({ method: 'GET', path });
      if (response.body === null) return;
      await store(response.body, options.output, deps);
      deps.tell(`${options.output}\n`);
    });
}

/** @throws SvcError */
function assertNoFolder(output: string): void {
  if (statSync(output, { throwIfNoEntry: false })?.isDirectory() !== true) return;
  throw new SvcError(EXIT.usage, { code: 'usage', message: `--output must name a file, and ${output} is a folder` });
}

/**
 * The file gets its name only after the whole download, so a download that fails leaves no half file. Until then its name is one that no other file
 * has. @throws SvcError
 */
async function store(body: ReadableStream<Uint8Array>, output: string, { ids, interrupted }: SvcDeps): Promise<void> {
  const half = join(dirname(output), `.svc-${ids.uuid()}.part`);
  const drop = (): void => rmSync(half, { force: true });
  // A second Ctrl-C ends the process at once, also while a slow disk keeps the first one waiting.
  process.once('exit', drop);
  try {
    // A pipe or a device, like /dev/stdout, takes the bytes itself. A file must not replace it.
    const found = statSync(output, { throwIfNoEntry: false });
    if (found !== undefined && !found.isFile())
      return await pipeline(Readable.fromWeb(body), createWriteStream(output));
    await pipeline(Readable.fromWeb(body), createWriteStream(half, { flags: 'wx' }));
    renameSync(half, output);
  } catch (error) {
    drop();
    if (interrupted.aborted) throw interruption();
    const message = `the download broke off: ${messageOf(error)}`;
    throw new SvcError(EXIT.failed, { code: 'download_failed', message });
  } finally {
    process.off('exit', drop);
  }
}

/** If `--json` is given, the chunks themselves are written, one on each line. */
function write(data: unknown, { json }: ChatOptions, { print }: SvcDeps): void {
  if (data === undefined) return;
  if (json === true) return print(`${JSON.stringify(data)}\n`);
  const [choice] = Chunk.safeParse(data).data?.choices ?? [];
  print(choice?.delta.content ?? '');
}

function failureOf(data: unknown, { headers }: Response): SvcError | undefined {
  const { error } = Failure.safeParse(data).data ?? {};
  if (error === undefined) return undefined;
  const requestId = headers.get('x-request-id');
  const exit = error.code === 'model_not_found' ? EXIT.notFound : EXIT.failed;
  return new SvcError(exit, { ...error, ...(requestId === null ? {} : { requestId }) });
}

/** A script must not go on to a job with a file that cannot be used. @throws SvcError */
function assertUsable(stored: unknown): void {
  const unusable = Unusable.safeParse(stored).data;
  if (unusable === undefined) return;
  const { id, status_details: why } = unusable;
  const message = `the file is stored, but cannot be used for training${why === undefined ? '' : `: ${why}`}`;
  const next = `See all problems: svc api GET /files/${id}/report`;
  throw new SvcError(EXIT.failed, { code: 'file_unusable', message, next });
}

/** A folder opens like a file, but its upload never ends. @throws SvcError if it is no file, or if it cannot be read */
async function contentOf(path: string): Promise<Blob> {
  try {
    if (!statSync(path).isFile()) throw new Error('it is no file');
    accessSync(path, constants.R_OK);
    return await openAsBlob(path);
  } catch (error) {
    throw new SvcError(EXIT.usage, { code: 'file_unreadable', message: `${path} cannot be read: ${messageOf(error)}` });
  }
}
