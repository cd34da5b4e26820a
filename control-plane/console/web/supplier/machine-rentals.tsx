// The rentals of a machine in the last day, as one ribbon for each GPU.
import type { MachineRental } from '../../../../shared/api/community.ts';
import type { MachineMetrics } from '../../../../shared/api/metrics.ts';
import type { Page } from '../../../../shared/api/page.ts';
import { serviceNow } from '../core/clock.ts';
import { useResource } from '../core/data.ts';
import { SameAs } from '../parts/command.tsx';
import { Card, Empty, Problem } from '../parts/layout.tsx';
import { Ribbon, RibbonKey } from '../parts/ribbon.tsx';
import { type Column, RowsTable } from '../parts/table.tsx';
import { type GpuTime, timeOfGpus } from './rented-time.ts';

const REREAD_MS = 30_000;
const DAY_MS = 86_400_000;
const RENTALS_MAX = 200;

interface Line {
  name: string;
  time: GpuTime;
  share: string;
}

export function MachineRentals({ id }: { id: string }) {
  const path = `/v1/community/machines/${id}/rentals?limit=${RENTALS_MAX}`;
  const options = { on: [{ type: 'machine', id }], everyMs: REREAD_MS };
  const { data, error, reload } = useResource<Page<MachineRental>>(path, options);
  const metrics = useResource<MachineMetrics>(`/v1/community/machines/${id}/metrics`);
  const rentals = data.value?.data;
  const indexes = new Map((metrics.data.value?.latest?.gpus ?? []).map((gpu) => [gpu.uuid, gpu.index]));
  const untilMs = serviceNow();
  const span = { fromMs: untilMs - DAY_MS, untilMs };
  const lines = timeOfGpus([...indexes.keys()], rentals ?? [], span).map((time) => lineOf(time, indexes));
  const oldest = rentals?.at(-1);
  const isCut = data.value?.next_cursor != null && oldest !== undefined && Date.parse(oldest.from) > span.fromMs;
  return (
    <Card
      title="The last 24 hours, GPU by GPU"
      note={isCut ? `only its newest ${RENTALS_MAX} rentals` : <RibbonKey />}
      footer={<SameAs cli={`svc machine rentals ${id}`} curl={{ path }} />}
    >
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {rentals === undefined ? (
        <p class="pad quiet">Reading…</p>
      ) : lines.length === 0 ? (
        <Empty title="Nothing was rented">No GPU of this machine was rented in the last 24 hours.</Empty>
      ) : (
        <RowsTable caption="GPU by GPU" rows={lines} columns={columnsOf(span)} />
      )}
    </Card>
  );
}

function lineOf(time: GpuTime, indexes: ReadonlyMap<string, number>): Line {
  const index = indexes.get(time.gpuUuid);
  const name = index === undefined ? time.gpuUuid : `GPU ${index}`;
  return { name, time, share: `${((100 * time.chargedMs) / DAY_MS).toFixed(1)} %` };
}

function columnsOf({ fromMs, untilMs }: { fromMs: number; untilMs: number }): readonly Column<Line>[] {
  return [
    { title: 'GPU', cell: ({ name, time }) => <span title={time.gpuUuid}>{name}</span> },
    {
      title: '24 h ago to now',
      class: 'ribw',
      cell: ({ name, time, share }) => (
        <Ribbon
          label={`${name}: ${share} of the last 24 hours were charged`}
          fromMs={fromMs}
          untilMs={untilMs}
          pieces={time.pieces}
        />
      ),
    },
    { title: 'Charged', class: 'num', cell: ({ share }) => share },
  ];
}
