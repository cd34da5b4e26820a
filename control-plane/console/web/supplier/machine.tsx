// One machine: what decides whether it is on offer, what it earns, how reliable it was, its price, and how and when it leaves the market.
import { useState } from 'preact/hooks';
import { Link } from 'wouter-preact';
import type { CommunityMachine, MachineChecklist } from '../../../../shared/api/community.ts';
import { call, post } from '../core/api.ts';
import { useResource } from '../core/data.ts';
import { cents, gpus, rate, relative } from '../core/format.ts';
import type { ScreenProps } from '../core/screen.ts';
import { may } from '../core/session.ts';
import { SameAs } from '../parts/command.tsx';
import { GpuMetrics } from '../parts/gpu-metrics.tsx';
import { Dialog, Form, useAction } from '../parts/forms.tsx';
import { Card, Figures, Head, Note, Problem } from '../parts/layout.tsx';
import { CheckSteps, passedWords } from './check-steps.tsx';
import { MachineEarnings, MachineOutages } from './machine-money.tsx';
import { calledOf, Rename } from './machine-name.tsx';
import { Price } from './machine-price.tsx';
import { MachineProbes } from './machine-probes.tsx';
import { MachineRentals } from './machine-rentals.tsx';
import { MachineStatus } from './machine-status.tsx';
import { Until } from './machine-until.tsx';

const CHECKS_MS = 10_000;

export function Machine({ params: { id = '' } }: ScreenProps) {
  const path = `/v1/community/machines/${id}`;
  const { data, error, reload } = useResource<CommunityMachine>(path, { on: [{ type: 'machine', id }] });
  const machine = data.value;
  if (machine === undefined)
    return error.value === undefined ? (
      <div aria-busy="true" />
    ) : (
      <Problem error={error.value} retry={() => void reload()} />
    );
  return (
    <>
      <Head
        title={`Machine ${calledOf(machine)}`}
        crumb={
          <>
            <Link href="/console/machines">Machines</Link> / <code>{id}</code>
          </>
        }
        same={{ cli: `svc machine get ${id}`, curl: { path } }}
      >
        {may('supply: write') && (
          <>
            <Rename machine={machine} changed={() => void reload()} />
            <Market machine={machine} changed={() => void reload()} />
          </>
        )}
      </Head>
      {error.value !== undefined && <Problem error={error.value} />}
      <MachineFigures machine={machine} />
      {machine.gpu_faults.map(({ gpu_uuid: gpu, severity, detail }) => (
        <Note key={gpu} tone={severity === 'broken' ? 'bad' : 'warn'}>
          GPU <code>{gpu}</code> is not on offer: {detail}
        </Note>
      ))}
      <div class="split">
        <Checks id={id} />
        <div class="stack">
          {may('supply: write') && (
            <>
              <Price machine={machine} changed={() => void reload()} />
              <Until machine={machine} changed={() => void reload()} />
            </>
          )}
          {machine.reported_gpus.length > 0 && (
            <GpuMetrics path={`${path}/metrics`} cli={`svc machine metrics ${id} --watch`} />
          )}
        </div>
      </div>
      <MachineRentals id={id} />
      <div class="split even">
        <div class="stack">
          <MachineProbes id={id} />
          <MachineOutages id={id} />
        </div>
        <MachineEarnings id={id} />
      </div>
    </>
  );
}

/** The time of the last message is up to ten minutes old while the agent is connected, so it is shown only afterwards. */
function agentOf({ online: isOnline, last_heartbeat_at: heard }: CommunityMachine): string {
  if (isOnline) return 'its agent is connected';
  return heard === null ? 'its agent was never heard' : `its agent was last heard ${relative(heard)}`;
}

function MachineFigures({ machine }: { machine: CommunityMachine }) {
  const { reported_gpus: groups, reliability, price_per_hour: price, earned_today_cents: today } = machine;
  const { uptime, launches, failed_launches: failed, rented } = reliability;
  const share = (value: number | null): string => (value === null ? 'no data' : `${(value * 100).toFixed(1)} %`);
  return (
    <Figures
      figures={[
        {
          label: 'Status',
          value: <MachineStatus machine={machine} />,
          small: agentOf(machine),
        },
        {
          label: 'GPUs',
          value:
            groups.length === 0 ? 'none yet' : groups.map(({ count, gpu_type: type }) => gpus(count, type)).join(', '),
          small: `${groups.reduce((sum, group) => sum + group.rented, 0)} rented`,
        },
        { label: 'Earned today', value: cents(today), small: 'since midnight UTC, as far as it is posted' },
        {
          label: 'Per GPU and hour',
          value: price === null ? 'not set' : rate(price),
          small: machine.tier.replace('_', ' '),
        },
        {
          label: 'Uptime, 30 days',
          value: share(uptime),
          small: [
            rented === null ? 'no rental' : `${share(rented)} rented`,
            launches === 0 ? 'no launch' : `${failed} of ${launches} launches failed`,
          ].join(', '),
        },
      ]}
    />
  );
}

/** Each check with its evidence, and with what to do if it has failed. */
function Checks({ id }: { id: string }) {
  const path = `/v1/community/machines/${id}/checks`;
  const { data, error, reload } = useResource<MachineChecklist>(path, {
    on: [{ type: 'machine', id }],
    everyMs: CHECKS_MS,
  });
  if (error.value !== undefined) return <Problem error={error.value} retry={() => void reload()} />;
  const checks = data.value?.checks ?? [];
  return (
    <Card
      title="Checks"
      note={<span role="status">{passedWords(checks)}</span>}
      footer={<SameAs cli={`svc machine checks ${id}`} curl={{ path }} />}
    >
      <CheckSteps checks={checks} />
    </Card>
  );
}

interface ChangeProps {
  machine: CommunityMachine;
  changed(): void;
}

/** Takes the machine off the market, or puts it back. Rentals on the machine go on. */
function Market({ machine, changed }: ChangeProps) {
  const [isAsking, setAsking] = useState(false);
  const path = `/v1/community/machines/${machine.machine_id}`;
  const isOff = machine.status === 'delisted';
  const relist = useAction(async () => {
    await post(`${path}/list`);
    changed();
  });
  const delist = useAction(async () => {
    await call('DELETE', path);
    setAsking(false);
    changed();
  });
  if (isOff) {
    return (
      <>
        <button class="btn pri" type="button" disabled={relist.isBusy} onClick={() => void relist.run()}>
          Put on offer again
        </button>
        {relist.error !== undefined && <Problem error={relist.error} />}
      </>
    );
  }
  return (
    <>
      <button class="btn kill" type="button" onClick={() => setAsking(true)}>
        Take off the market
      </button>
      {isAsking && (
        <Dialog title="Take the machine off the market?" close={() => setAsking(false)}>
          <p class="dim">What runs there goes on and is paid. Nothing new starts. You can put it on offer again.</p>
          <SameAs cli={`svc machine delist ${machine.machine_id}`} curl={{ method: 'DELETE', path }} />
          <Form
            action={delist}
            submit="Take off the market"
            busy="Taking off…"
            tone="kill"
            cancel={() => setAsking(false)}
          />
        </Dialog>
      )}
    </>
  );
}
