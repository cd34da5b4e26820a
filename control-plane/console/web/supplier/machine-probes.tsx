// Results of our probes (logins to a machine's rentals) in the last day: a ribbon of hours, and the counts.
import type { MachineProbes as Counts } from '../../../../shared/api/community.ts';
import { serviceNow } from '../core/clock.ts';
import { useResource } from '../core/data.ts';
import { count, plural } from '../core/format.ts';
import { SameAs } from '../parts/command.tsx';
import { Card, Empty, Problem } from '../parts/layout.tsx';
import { DayAxis, Ribbon, type RibbonPiece } from '../parts/ribbon.tsx';

const REREAD_MS = 60_000;
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export function MachineProbes({ id }: { id: string }) {
  const path = `/v1/community/machines/${id}/probes`;
  const { data, error, reload } = useResource<Counts>(path, { everyMs: REREAD_MS });
  const probes = data.value;
  return (
    <Card
      title="Probes"
      note="SSH logins from outside, about every 30 s"
      footer={<SameAs cli={`svc machine probes ${id}`} curl={{ path }} />}
    >
      {error.value !== undefined && <Problem error={error.value} retry={() => void reload()} />}
      {probes === undefined ? (
        <p class="pad quiet">Reading…</p>
      ) : probes.hours.length === 0 ? (
        <Empty title="No probe">
          Rentals are probed. None ran here in the last 24 hours, or the first counts are not written yet.
        </Empty>
      ) : (
        <Day probes={probes} />
      )}
    </Card>
  );
}

function Day({ probes: { good, failed, hours } }: { probes: Counts }) {
  const nowMs = serviceNow();
  const words = `${count(good)} of ${plural(good + failed, 'probe')} good`;
  return (
    <div class="pad stack tight">
      <b class="num">{words}</b>
      <Ribbon
        label={`The last 24 hours: ${words}`}
        fromMs={nowMs - DAY_MS}
        untilMs={nowMs}
        pieces={hours.map(pieceOf)}
      />
      <DayAxis />
    </div>
  );
}

/** An hour in which some probes failed is yellow; one in which all did is red. */
function pieceOf({ hour, good, failed }: Counts['hours'][number]): RibbonPiece {
  const fromMs = Date.parse(hour);
  return { kind: failed === 0 ? 'up' : good > 0 ? 'silent' : 'down', fromMs, untilMs: fromMs + HOUR_MS };
}
