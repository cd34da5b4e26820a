// Whether the person gets mails about what happens in its organisations.
import { post } from '../core/api.ts';
import { loadSession, session } from '../core/session.ts';
import { useAction } from '../parts/forms.tsx';
import { Card, Problem } from '../parts/layout.tsx';

export function Notices() {
  const isOn = session.value?.mail_notices === true;
  const change = useAction(async () => {
    await post('/v1/auth/notices', { mail_notices: !isOn });
    await loadSession();
  });
  return (
    <Card title="Notices by mail" note="If the operator has a mail server">
      <div class="pad stack tight">
        <label class="check">
          <input type="checkbox" checked={isOn} disabled={change.isBusy} onChange={() => void change.run()} />
          Mail me when a balance ends, or when instances or machines fail that I may change
        </label>
        {change.error !== undefined && <Problem error={change.error} />}
      </div>
    </Card>
  );
}
