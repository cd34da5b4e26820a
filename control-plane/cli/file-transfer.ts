// `svc file upload` and `svc file download`.
import { createWriteStream, openAsBlob, renameSync, rmSync } from 'node:fs';
import { basename } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { Command } from 'commander';
import { messageOf } from '../../shared/errors.ts';
import { type CommonOptions, show, signedIn, type SvcDeps, withCommon } from './command.ts';
import { EXIT, SvcError } from './exit.ts';

export function addFileCommands(file: Command, deps: SvcDeps): void {
  withCommon(file.command('upload <path>'))
    .description('upload a file, such as examples for fine-tuning')
    .option('--purpose <purpose>', 'what it is for', 'fine-tune')
    .action(async (path: string, options: CommonOptions & { purpose: string }) => {
      const content = await openAsBlob(path).catch((error: unknown) => unreadable(path, error));
      const form = new FormData();
      form.set('purpose', options.purpose);
      form.set('file', content, basename(path));
      deps.tell(`uploading ${content.size} bytes\n`);
      const stored = await signedIn(deps, options).json({ method: 'POST', path: '/files', raw: form, isOnce: true });
      show(deps, options, stored, { columns: ['id', 'filename', 'bytes', 'purpose', 'status'], id: 'id' });
    });
  withCommon(file.command('download <id>'))
    .description('download a file')
    .requiredOption('-o, --output <path>', 'where to store it')
    .action(async (id: string, options: CommonOptions & { output: string }) => {
      const path = `/files/${encodeURIComponent(id)}/content`;
      const response = await signedIn(deps, options).open({ method: 'GET', path, signal: deps.interrupted });
      if (response.body === null) return;
      // The file gets its name only after the whole download, so a download that fails leaves no half file.
      const half = `${options.output}.part`;
      try {
        await pipeline(Readable.fromWeb(response.body), createWriteStream(half));
        renameSync(half, options.output);
      } catch (error) {
        rmSync(half, { force: true });
        throw new SvcError(EXIT.failed, {
          code: 'download_failed',
          message: `the download broke off: ${messageOf(error)}`,
        });
      }
      deps.tell(`${options.output}\n`);
    });
}

function unreadable(path: string, error: unknown): never {
  throw new SvcError(EXIT.usage, { code: 'file_unreadable', message: `${path} cannot be read: ${messageOf(error)}` });
}
