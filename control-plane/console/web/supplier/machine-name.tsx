// What a machine is called, and the form in which its supplier renames it.
import { useState } from 'preact/hooks';
import type { CommunityMachine } from '../../../../shared/api/community.ts';
import { call } from '../core/api.ts';
import { quoted, shortId } from '../core/format.ts';
import { isTyped, useTyped } from '../core/typed.ts';
import { SameAs } from '../parts/command.tsx';
import { Dialog, Field, Form, useAction } from '../parts/forms.tsx';

export const MACHINE_NAME_CHARS_MAX = 100;

/** The name that its supplier has given it, else the name of its host. Before the host has enrolled: the end of its id. */
export function calledOf({ name, hostname, machine_id: id }: CommunityMachine): string {
  return name ?? (hostname || shortId(id));
}

interface RenameProps {
  machine: CommunityMachine;
  changed(): void;
}

/** The form in which this machine is renamed. */
const renameOf = ({ machine_id: id }: CommunityMachine): string => `rename/${id}`;

export function Rename({ machine, changed }: RenameProps) {
  const [isOpen, setOpen] = useState(isTyped(renameOf(machine)));
  return (
    <>
      <button class="btn bare" type="button" onClick={() => setOpen(true)}>
        Rename
      </button>
      {isOpen && <RenameDialog machine={machine} changed={changed} close={() => setOpen(false)} />}
    </>
  );
}

function RenameDialog({ machine, changed, close }: RenameProps & { close(): void }) {
  const [name, setName] = useTyped(renameOf(machine), machine.name ?? '');
  const path = `/v1/community/machines/${machine.machine_id}`;
  const body = { name: name === '' ? null : name };
  const action = useAction(async () => {
    await call('PATCH', path, body);
    close();
    changed();
  });
  return (
    <Dialog title={`Rename ${calledOf(machine)}`} close={close}>
      <Form action={action} submit="Rename" busy="Renaming…" cancel={close}>
        <Field
          label="Name"
          value={name}
          onValue={setName}
          maxLength={MACHINE_NAME_CHARS_MAX}
          rule={action.ruleOf('name')}
          hint="Customers do not see it. Empty: it is called like its host."
        />
      </Form>
      <SameAs
        cli={`svc machine change ${machine.machine_id} --name ${quoted(name)}`}
        curl={{ method: 'PATCH', path, body }}
      />
    </Dialog>
  );
}
