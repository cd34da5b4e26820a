// How to reach an instance: lines to copy and addresses to open.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { Connection, Instance } from '../../../../shared/api/instance.ts';
import { get } from '../core/api.ts';
import { quoted } from '../core/format.ts';
import { may } from '../core/session.ts';
import { Copy } from '../parts/command.tsx';
import { useAction } from '../parts/forms.tsx';
import { Card, Problem } from '../parts/layout.tsx';

export function Connect({ instance }: { instance: Instance }) {
  const { connection, name, id } = instance;
  const ssh = `svc ssh ${quoted(name ?? id)}`;
  if (connection === null || instance.ready_at === null) {
    return (
      <Card title="Connect" note="Works once SSH is tested">
        <div class="pad stack tight">
          <Copy text={`svc instance wait ${quoted(name ?? id)}`} what="the command that waits" />
          <Copy text={ssh} what="the command that connects" />
          <p class="small quiet">The address and the password appear here.</p>
        </div>
      </Card>
    );
  }
  return (
    <Card title="Connect">
      <div class="pad kv conn">
        {connection.ssh_command !== undefined && (
          <>
            <span class="dim">SSH</span>
            <Copy text={connection.ssh_command} what="the SSH command" />
          </>
        )}
        <span class="dim">CLI</span>
        <Copy text={ssh} what="the svc command" />
        {connection.app_url !== undefined && (
          <Address label="App" url={connection.app_url}>
            Open
          </Address>
        )}
        {connection.terminal_url !== undefined && (
          <Address label="Terminal" url={connection.terminal_url}>
            Open
          </Address>
        )}
        <Ports ports={connection.ports ?? []} />
        {connection.app_user !== undefined && may('instances: write') && (
          <Login instanceId={id} user={connection.app_user} />
        )}
        {connection.host_key !== undefined && (
          <>
            <span class="dim">Host key</span>
            <Copy text={connection.host_key} what="the host key" />
          </>
        )}
      </div>
    </Card>
  );
}

function Address({ label, url, children }: { label: string; url: string; children: ComponentChildren }) {
  return (
    <>
      <span class="dim">{label}</span>
      <div class="row">
        <Copy text={url} what={`the address of ${label}`} />
        <a class="btn sm" href={url} target="_blank" rel="noreferrer" aria-label={`Open ${label}`}>
          {children}
        </a>
      </div>
    </>
  );
}

function Ports({ ports }: { ports: NonNullable<Connection['ports']> }) {
  return (
    <>
      {ports.map(({ port, protocol, url, hostname, public_port: open }) => {
        const text =
          url ??
          (hostname === undefined || open === undefined
            ? undefined
            : `${hostname.includes(':') ? `[${hostname}]` : hostname}:${open}`);
        return (
          text !== undefined && (
            <>
              <span class="dim">
                {port}/{protocol}
              </span>
              <Copy text={text} what={`the address of port ${port}`} />
            </>
          )
        );
      })}
    </>
  );
}

/** The password is read only when somebody wants to see it. */
function Login({ instanceId, user }: { instanceId: string; user: string }) {
  const [password, setPassword] = useState<string>();
  const show = useAction(async () => {
    const { connection } = await get<Instance>(`/v1/instances/${instanceId}?include=credentials`);
    setPassword(connection?.app_password ?? '');
  });
  return (
    <>
      <span class="dim">Login</span>
      <div class="row">
        <code>{user}</code>
        {password === undefined ? (
          <button class="btn sm" type="button" disabled={show.isBusy} onClick={() => void show.run()}>
            {show.isBusy ? 'Reading…' : 'Show password'}
          </button>
        ) : (
          <Copy text={password} what="the password" />
        )}
        {show.error !== undefined && <Problem error={show.error} />}
      </div>
    </>
  );
}
