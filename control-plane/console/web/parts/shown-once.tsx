// A secret that the API shows once, right after it was made.
import { Copy } from './command.tsx';
import { Card, Note } from './layout.tsx';

interface ShownOnceProps {
  title: string;
  secret: string;
  /** Name of the secret in the label of the copy button, like "the key". */
  what: string;
  /** Sentence about what the secret can do. It is shown after "Copy it now.". */
  note: string;
}

export function ShownOnce({ title, secret, what, note }: ShownOnceProps) {
  return (
    <Card title={title} note="Shown only now">
      <div class="pad stack tight">
        <Copy text={secret} what={what} />
        <Note tone="warn">Copy it now. {note}</Note>
      </div>
    </Card>
  );
}
