// What can be rented now: live prices and counts, filters, and why other offerings are not listed.
import { useEffect, useState } from 'preact/hooks';
import type { Reservation } from '../../../../shared/api/reservation.ts';
import type { PricingRow } from '../../../../shared/api/pricing.ts';
import { useResource } from '../core/data.ts';
import { count, plural, rate } from '../core/format.ts';
import { WHOLE_ROWS_MAX } from '../core/page-reader.ts';
import { useAllPages } from '../core/pages.ts';
import { Field, Select } from '../parts/forms.tsx';
import { Card, Empty, Problem, Tag } from '../parts/layout.tsx';
import { LongTable, RowsTable } from '../parts/table.tsx';
import type { LaunchDraft } from './launch-form.ts';

const REREAD_MS = 5_000;
const COUNTS = [1, 2, 4, 8] as const;
const MEMORY_GB = [0, 24, 48, 80, 141] as const;
const FEW_LEFT = 4;

interface Filters {
  type: string;
  region: string;
  vramGb: string;
  most: string;
}

const NO_FILTERS: Filters = { type: '', region: '', vramGb: '0', most: '' };

interface OfferingsProps {
  draft: LaunchDraft;
  change(part: Partial<LaunchDraft>): void;
}

export function Offerings({ draft, change }: OfferingsProps) {
  if (draft.tier === 'on_demand') return <OnDemand draft={draft} change={change} />;
  return (
    <Card title="Contracts">
      <div class="pad row">
        <HowMany draft={draft} change={change} />
      </div>
      <ReservedChoice draft={draft} change={change} />
    </Card>
  );
}

function OnDemand({ draft, change }: OfferingsProps) {
  const [filters, setFilters] = useState(NO_FILTERS);
  const { rows, isCut, error, reload } = useAllPages<PricingRow>('/v1/pricing', REREAD_MS);
  const regions = [...new Set((rows ?? []).map(({ region }) => region))].toSorted();
  const types = [...new Set((rows ?? []).map(({ gpu_type: type }) => type))].toSorted();
  // Takes the new price and count of the chosen offering into the draft. If the offering is not listed any more, its count becomes 0. If the list
  // is cut, a missing offering may still be listed, so its count stays.
  useEffect(() => {
    const { chosen } = draft;
    if (rows === undefined || chosen === undefined) return;
    const gone = isCut ? chosen : { ...chosen, available: 0 };
    const now = rows.find(({ offering_id: id }) => id === chosen.offering_id) ?? gone;
    if (JSON.stringify(now) !== JSON.stringify(chosen)) change({ chosen: now });
  }, [rows]);
  const listed = (rows ?? [])
    .filter((row) => hiddenBy(row, filters, draft) === undefined)
    .toSorted((a, b) => a.price_per_hour - b.price_per_hour);
  return (
    <Card
      title="Offerings"
      note="Prices and counts of now"
      footer={
        rows !== undefined && (
          <>
            {isCut && (
              <p class="small warn">
                Only the newest {count(WHOLE_ROWS_MAX)} offerings are read. There are older ones.
              </p>
            )}
            <Hidden rows={rows} filters={filters} draft={draft} clear={() => setFilters(NO_FILTERS)} />
          </>
        )
      }
    >
      <Wishes
        {...{ draft, change, filters, regions, types }}
        setFilters={(part) => setFilters({ ...filters, ...part })}
      />
      {error !== undefined && <Problem error={error} retry={reload} />}
      {rows === undefined && <p class="pad quiet">Reading…</p>}
      {rows !== undefined && listed.length === 0 && (
        <Empty title="No offering fits" cli="svc price list">
          Fewer GPUs, less memory or another region may be free.
        </Empty>
      )}
      {listed.length > 0 && <Choice rows={listed} draft={draft} change={change} />}
    </Card>
  );
}

interface WishesProps extends OfferingsProps {
  filters: Filters;
  regions: readonly string[];
  types: readonly string[];
  setFilters(part: Partial<Filters>): void;
}

function Wishes({ draft, change, filters, regions, types, setFilters }: WishesProps) {
  return (
    <div class="pad row" role="group" aria-label="Filters">
      <HowMany draft={draft} change={change} />
      <Select
        label="GPU type"
        value={filters.type}
        options={[['', 'Any type'] as const, ...types.map((each) => [each, each.replaceAll('_', ' ')] as const)]}
        onValue={(type) => setFilters({ type })}
      />
      <Select
        label="Memory per GPU"
        value={filters.vramGb}
        options={MEMORY_GB.map((each) => [String(each), each === 0 ? 'Any' : `${each} GB or more`] as const)}
        onValue={(vramGb) => setFilters({ vramGb })}
      />
      <Select
        label="Region"
        value={filters.region}
        options={[['', 'Any region'] as const, ...regions.map((each) => [each, each] as const)]}
        onValue={(region) => setFilters({ region })}
      />
      <Field
        label="At most, $/h per GPU"
        class="num short"
        type="number"
        min="0"
        step="0.01"
        value={filters.most}
        onValue={(most) => setFilters({ most })}
      />
    </div>
  );
}

function HowMany({ draft, change }: OfferingsProps) {
  return (
    <>
      <fieldset class="field">
        <legend>GPUs</legend>
        <span class="seg">
          {COUNTS.map((each) => (
            <label key={each}>
              <input
                type="radio"
                name="count"
                checked={draft.gpuCount === each}
                onChange={() => change({ gpuCount: each })}
              />
              {each}
            </label>
          ))}
        </span>
      </fieldset>
      <Select
        label="Paid"
        value={draft.tier}
        options={[
          ['on_demand', 'By the second'],
          ['reserved', 'By a contract'],
        ]}
        onValue={(tier) => change({ tier })}
      />
    </>
  );
}

function Choice({ rows, draft, change }: OfferingsProps & { rows: readonly PricingRow[] }) {
  const { gpuCount, chosen } = draft;
  return (
    <LongTable
      caption="Offerings"
      rows={rows}
      columns={[
        {
          title: 'GPU',
          cell: (row) => (
            <label class="check">
              <input
                type="radio"
                name="offering"
                checked={chosen?.offering_id === row.offering_id}
                disabled={row.available < gpuCount}
                onChange={() => change({ chosen: row })}
              />
              <span>
                {row.gpu_type.replaceAll('_', ' ')} <span class="quiet num">{row.vram_gb} GB</span>{' '}
                <small class="n quiet">{row.region}</small>
              </span>
            </label>
          ),
        },
        { title: 'Region', class: 'w', cell: ({ region }) => region },
        { title: 'Disk up to', class: 'w x', cell: (row) => <span class="dim">{diskOf(row)}</span> },
        { title: 'Free', class: 'num', cell: (row) => <Free row={row} gpuCount={gpuCount} /> },
        { title: '1 GPU', class: 'num w', cell: ({ price_per_hour: price }) => <span class="dim">{rate(price)}</span> },
        {
          title: `${plural(gpuCount, 'GPU')}, per hour`,
          class: 'num',
          cell: ({ price_per_hour: price }) => <b>{rate(Number((price * gpuCount).toFixed(8)))}</b>,
        },
      ]}
    />
  );
}

/** A choice among the capacity of the active contracts, which has no price by the hour. */
function ReservedChoice({ draft, change }: OfferingsProps) {
  const { data, error, reload } = useResource<Reservation[]>('/v1/reservations', { on: [{ type: 'instance' }] });
  if (error.value !== undefined) return <Problem error={error.value} retry={() => void reload()} />;
  const active = (data.value ?? []).filter(({ status }) => status === 'active');
  if (data.value !== undefined && active.length === 0) {
    return (
      <Empty title="No active contract" cli="svc reservation list">
        The operator of the service makes contracts.
      </Empty>
    );
  }
  const rows = active.flatMap(({ title, commitment }) => commitment.map((entry) => ({ ...entry, title })));
  return (
    <RowsTable
      caption="GPUs of contracts"
      rows={rows}
      columns={[
        {
          title: 'GPU',
          cell: ({ gpu_type: type, region }) => (
            <label class="check">
              <input
                type="radio"
                name="reserved"
                checked={draft.reserved?.gpu_type === type && draft.reserved.region === region}
                onChange={() => change({ reserved: { gpu_type: type, region } })}
              />
              {type.replaceAll('_', ' ')}
            </label>
          ),
        },
        { title: 'Region', cell: ({ region }) => region },
        { title: 'Contract', class: 'w', cell: ({ title }) => title },
        { title: 'Committed', class: 'num', cell: ({ gpu_count: count }) => count },
      ]}
    />
  );
}

function Free({ row: { available }, gpuCount }: { row: PricingRow; gpuCount: number }) {
  if (available < gpuCount) return <span class="quiet">{`${available}, needs ${gpuCount}`}</span>;
  return available < FEW_LEFT ? <span class="warn">{available} left</span> : <>{available}</>;
}

function diskOf({ disk_configurable: canChoose, storage_gb: gb }: PricingRow): string {
  if (!canChoose) return 'not to choose';
  return gb === 0 ? 'unknown' : `${gb.toLocaleString('en-US')} GB`;
}

/** The filter that hides an offering, in words. */
function hiddenBy(row: PricingRow, { type, region, vramGb, most }: Filters, { disk }: LaunchDraft): string | undefined {
  if (type !== '' && row.gpu_type !== type) return 'of another type';
  if (row.vram_gb < Number(vramGb)) return `less than ${vramGb} GB`;
  if (region !== '' && row.region !== region) return `not in ${region}`;
  if (most !== '' && row.price_per_hour > Number(most)) return `above $${most} per GPU`;
  if (disk !== '' && !row.disk_configurable) return 'no choice of disk';
  if (disk !== '' && row.storage_gb < Number(disk)) return `under ${disk} GB disk`;
  return undefined;
}

interface HiddenProps {
  rows: readonly PricingRow[];
  filters: Filters;
  draft: LaunchDraft;
  clear(): void;
}

function Hidden({ rows, filters, draft, clear }: HiddenProps) {
  const reasons = rows.map((row) => hiddenBy(row, filters, draft)).filter((reason) => reason !== undefined);
  const counts = [...new Set(reasons)].map((reason) => [reason, reasons.filter((each) => each === reason).length]);
  if (reasons.length === 0) return <p class="small quiet">{plural(rows.length, 'offering')}, none hidden.</p>;
  return (
    <details open>
      <summary>Not listed: {plural(reasons.length, 'other offering')}. Why?</summary>
      <div class="row small">
        {counts.map(([reason, count]) => (
          <Tag key={reason}>
            {count} {reason}
          </Tag>
        ))}
        <button class="btn sm" type="button" onClick={clear}>
          Clear filters
        </button>
      </div>
    </details>
  );
}
