// Buttons that rename or end an instance, or launch another one like it.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { Instance } from '../../../../shared/api/instance.ts';
import { call } from '../core/api.ts';
import { dollars, quoted } from '../core/format.ts';
import { may } from '../core/session.ts';
import { isTyped, useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Dialog, Field, Form, useAction } from '../parts/forms.tsx';
import { isBooting } from './instance-boot.tsx';

interface ActionsProps {
  instance: Instance;
  /** Cost until now in dollars; undefined until the bill is known. */
  cost: string | undefined;
  reload(): Promise<void>;
}

export function Actions({ instance, cost, reload }: ActionsProps) {
  const [open, setOpen] = useState<'rename' | 'end' | undefined>(isTyped(renameOf(instance)) ? 'rename' : undefined);
  const close = (): void => setOpen(undefined);
  const done = async (): Promise<void> => {
    close();
    await reload();
  };
  const hasEnded = ['stopped', 'terminated'].includes(instance.status);
  return (
    <>
      {!isBooting(instance) && may('instances: write') && (
        <Link class="btn bare" href={`/console/launch?again=${instance.id}`}>
          Launch again
        </Link>
      )}
      <button class="btn bare" type="button" onClick={() => setOpen('rename')}>
        Rename
      </button>
      {!hasEnded && (
        <button class="btn kill" type="button" disabled={instance.status === 'stopping'} onClick={() => setOpen('end')}>
          {verbOf(instance)}
        </button>
      )}
      {open === 'rename' && <Rename instance={instance} done={done} close={close} />}
      {open === 'end' && <End instance={instance} cost={cost} done={done} close={close} />}
    </>
  );
}

function verbOf(instance: Instance): string {
  if (instance.status === 'stopping') return 'Terminating…';
  return isBooting(instance) ? 'Cancel launch' : 'Terminate';
}

interface DialogProps {
  instance: Instance;
  done(): Promise<void>;
  close(): void;
}

/** The form in which this instance is renamed. */
const renameOf = ({ id }: Pick<Instance, 'id'>): string => `rename/${id}`;

function Rename({ instance: { id, name }, done, close }: DialogProps) {
  const [next, setNext] = useTyped(renameOf({ id }), name ?? '');
  const body = { name: next === '' ? null : next };
  const action = useAction(async () => {
    await call('PATCH', `/v1/instances/${id}`, body);
    await done();
  });
  return (
    <Dialog title={`Rename ${name ?? id}`} close={close}>
      <Form action={action} submit="Rename" busy="Renaming…" cancel={close}>
        <Field
          label="Name"
          value={next}
          onValue={setNext}
          maxLength={128}
          rule={action.ruleOf('name')}
          hint="Empty: it is called by its id."
        />
      </Form>
      <SameAs
        cli={`svc instance rename ${id} --name ${quoted(next || 'NAME')}`}
        curl={{ method: 'PATCH', path: `/v1/instances/${id}`, body }}
      />
    </Dialog>
  );
}

function End({ instance, cost, done, close }: DialogProps & { cost: string | undefined }) {
  const { id, name, disk_gb: disk } = instance;
  const title = name ?? id;
  const [typed, setTyped] = useState('');
  const action = useAction(async () => {
    await call('DELETE', `/v1/instances/${id}`);
    await done();
  });
  const booting = isBooting(instance);
  const spent = cost === undefined ? '' : `; so far ${dollars(cost)}`;
  return (
    <Dialog title={booting ? `Cancel the launch of ${title}?` : `Terminate ${title}?`} close={close}>
      <p>
        {booting ? (
          'It has not run and costs nothing.'
        ) : (
          <>
            Its {disk === undefined ? 'disk' : `${disk} GB disk`} is deleted and cannot be restored.{' '}
            {instance.status === 'error'
              ? 'It has failed, and nothing is billed any more.'
              : `Billing stops at once${spent}.`}
          </>
        )}
      </p>
      <Form
        action={action}
        submit={booting ? 'Cancel the launch' : 'Terminate and delete disk'}
        busy={booting ? 'Cancelling…' : 'Terminating…'}
        tone="kill"
        isDisabled={typed !== title}
        cancel={close}
      >
        <Field
          label="Type the name to confirm"
          value={typed}
          onValue={setTyped}
          placeholder={title}
          autoComplete="off"
          spellcheck={false}
        />
      </Form>
      <SameAs cli={`svc instance delete ${quoted(title)}`} curl={{ method: 'DELETE', path: `/v1/instances/${id}` }} />
    </Dialog>
  );
}
