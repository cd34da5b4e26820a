// Forms as clients send them, and training files to put into them.
import type { Answer, Api, ApiAccount } from './api.ts';

const BOUNDARY = 'a-line-between';

export interface FormPart {
  name: string;
  value: string;
  /** Makes it a file. */
  filename?: string;
}

/** Sends exactly these parts in this order to /v1/files. */
export function postForm(
  api: Api,
  { key }: Pick<ApiAccount, 'key'>,
  parts: readonly FormPart[],
  contentType?: string,
): Promise<Answer> {
  return api.call('POST', '/v1/files', { key, form: formOf(parts, contentType) });
}

export function formOf(
  parts: readonly FormPart[],
  type = `multipart/form-data; boundary=${BOUNDARY}`,
): { type: string; text: string } {
  return { type, text: formText(parts) };
}

function formText(parts: readonly FormPart[]): string {
  const texts = parts.map(({ name, value, filename }) => {
    const file = filename === undefined ? '' : `; filename="${filename}"\r\nContent-Type: application/octet-stream`;
    return `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"${file}\r\n\r\n${value}\r\n`;
  });
  return `${texts.join('')}--${BOUNDARY}--\r\n`;
}

/** The form that official clients send: the file comes before what it is for. */
export function uploadForm(content: string, filename = 'train.jsonl'): FormPart[] {
  return [
    { name: 'file', value: content, filename },
    { name: 'purpose', value: 'fine-tune' },
  ];
}

/** So many examples, each different. `times`: how often each says its answer. */
export function trainingLines(count: number, times = 1): string {
  const lines = Array.from({ length: count }, (_, i) => {
    const messages = [
      { role: 'user', content: `What is ${i}?` },
      { role: 'assistant', content: `A number: ${i}.`.repeat(times) },
    ];
    return `${JSON.stringify({ messages })}\n`;
  });
  return lines.join('');
}
