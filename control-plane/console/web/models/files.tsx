// Files of examples for fine-tuning, with the report of their check, and the cost of a job with them.
import { useId, useState } from 'preact/hooks';
import type { FileObject, TrainingReport } from '../../../../shared/api/file.ts';
import { call, parsed, send } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { bytes, count, quoted, time } from '../core/format.ts';
import { may } from '../core/session.ts';
import { SameAs } from '../parts/command.tsx';
import { Dialog, Form, nameOf, spoken, useAction } from '../parts/forms.tsx';
import { Badge, Card, Empty, Head, Note, Problem } from '../parts/layout.tsx';
import { RowsTable } from '../parts/table.tsx';
import { useAfterList } from './use-after-list.ts';
import { AfterTable } from './after-table.tsx';
import { Quotes } from './quotes.tsx';

const MS = 1_000;

export function Files() {
  const list = useAfterList<FileObject>('/v1/files?limit=50');
  const [reported, setReported] = useState<FileObject>();
  const [deleting, setDeleting] = useState<FileObject>();
  return (
    <>
      <Head title="Files" same={{ cli: 'svc file list', curl: { path: '/v1/files?limit=50' } }} />
      {may('files: write') && <Upload done={() => void list.reload()} />}
      <AfterTable
        caption="Files"
        list={list}
        columns={[
          {
            title: 'File',
            cell: ({ id, filename }) => (
              <>
                <span class="brk">{filename}</span>
                <br />
                <small class="quiet w">
                  <code>{id}</code>
                </small>
              </>
            ),
          },
          { title: 'Check', cell: (file) => <FileStatus file={file} /> },
          { title: 'Size', class: 'num w', cell: (file) => bytes(file.bytes) },
          { title: 'Uploaded (UTC)', class: 'w', cell: (file) => time(new Date(file.created_at * MS).toISOString()) },
          {
            title: 'What to do',
            cell: (file) => (
              <span class="row">
                <button class="btn sm" type="button" onClick={() => setReported(file)}>
                  Report
                </button>
                <a class="btn sm w" href={`/v1/files/${file.id}/content`} download={file.filename}>
                  Download
                </a>
                {may('files: write') && (
                  <button class="btn sm kill" type="button" onClick={() => setDeleting(file)}>
                    Delete
                  </button>
                )}
              </span>
            ),
          },
        ]}
        empty={
          <Empty title="No file yet" cli="svc file upload examples.jsonl">
            A file of JSON lines, each with the messages of one example. At least 10 lines.
          </Empty>
        }
      />
      {reported !== undefined && <Report key={reported.id} file={reported} />}
      {deleting !== undefined && (
        <Delete file={deleting} close={() => setDeleting(undefined)} done={() => void list.reload()} />
      )}
    </>
  );
}

function FileStatus({ file: { status, status_details: why } }: { file: FileObject }) {
  return (
    <>
      <Badge tone={status === 'processed' ? 'ok' : 'bad'}>{status === 'processed' ? 'valid' : 'not valid'}</Badge>
      {why !== undefined && <small>{why}</small>}
    </>
  );
}

function Upload({ done }: { done(): void }) {
  const id = useId();
  const [file, setFile] = useState<File>();
  const [stored, setStored] = useState<FileObject>();
  const action = useAction(async () => {
    if (file === undefined) return;
    const form = new FormData();
    form.set('purpose', 'fine-tune');
    form.set('file', file, file.name);
    setStored(await parsed<FileObject>(await send('POST', '/v1/files', form)));
    done();
  });
  return (
    <Card title="Upload" note="JSON lines of examples">
      <div class="pad stack">
        <Form action={action} submit="Upload the file" busy="Uploading…" isDisabled={file === undefined}>
          <label class="field">
            <span id={nameOf(id)}>File</span>
            <input
              type="file"
              accept=".jsonl"
              {...spoken(id, { isDescribed: true, rule: undefined })}
              onChange={(event) => setFile(event.currentTarget.files?.[0])}
            />
            <small id={id}>
              Each line is <code>{'{"messages": [{"role": "user", "content": "…"}, …]}'}</code>
            </small>
          </label>
        </Form>
        <SameAs
          cli={`svc file upload ${quoted(file?.name ?? 'examples.jsonl')}`}
          curl={{
            method: 'POST',
            path: '/v1/files',
            form: ['purpose=fine-tune', `file=@${file?.name ?? 'examples.jsonl'}`],
          }}
        />
        {stored?.status === 'error' && (
          <Note tone="bad">
            <b>{stored.filename} is stored, but cannot be trained with.</b> {stored.status_details}
          </Note>
        )}
        {stored?.svc !== undefined && stored.status === 'processed' && (
          <>
            <h3>What fine-tuning with {stored.filename} would cost</h3>
            <Quotes quotes={stored.svc.quotes} />
          </>
        )}
      </div>
    </Card>
  );
}

function Report({ file: { id, filename } }: { file: FileObject }) {
  const path = `/v1/files/${id}/report`;
  const { data, error, reload } = useResource<TrainingReport>(path);
  const report = data.value;
  return (
    <Card title={`Report on ${filename}`} footer={<SameAs cli={`svc api GET /files/${id}/report`} curl={{ path }} />}>
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {report !== undefined && (
        <>
          <dl class="kv pad">
            <dt>Examples</dt>
            <dd>{count(report.examples)}</dd>
            <dt>Tokens, estimated</dt>
            <dd>{count(report.estimated_tokens)}</dd>
            <dt>Repeated examples</dt>
            <dd>{count(report.repeated_examples)}</dd>
            <dt>Problems</dt>
            <dd>{count(report.problems_found)}</dd>
          </dl>
          {report.problems.length > 0 && (
            <RowsTable
              caption="The first problems"
              rows={report.problems}
              columns={[
                { title: 'Line', cell: ({ line }) => (line === null ? 'the whole file' : count(line)) },
                { title: 'Rule', cell: ({ rule }) => <code>{rule}</code> },
                { title: 'What is wrong', cell: ({ message }) => message },
              ]}
            />
          )}
        </>
      )}
    </Card>
  );
}

function Delete({ file: { id, filename }, close, done }: { file: FileObject; close(): void; done(): void }) {
  const path = `/v1/files/${id}`;
  const action = useAction(async () => {
    await call('DELETE', path);
    done();
    close();
  });
  return (
    <Dialog title={`Delete ${filename}?`} close={close}>
      <Form action={action} submit="Delete the file" busy="Deleting…" tone="kill" cancel={close}>
        <p class="small dim">It cannot be brought back. A file that a job reads cannot be deleted.</p>
      </Form>
      <SameAs cli={`svc file delete ${id}`} curl={{ method: 'DELETE', path }} />
    </Dialog>
  );
}
