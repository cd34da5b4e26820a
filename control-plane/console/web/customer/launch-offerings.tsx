// What can be rented now: live prices and counts, filters, and why other offerings are not listed.
import { useEffect } from 'preact/hooks';
import type { Reservation } from '../../../../shared/api/reservation.ts';
import type { PricingRow } from '../../../../shared/api/pricing.ts';
import { AUTO_TERMINATE_HOURS_MAX } from '../../../../shared/limits.ts';
import { useResource } from '../core/data.ts';
import { count, plural, rate } from '../core/format.ts';
import { WHOLE_ROWS_MAX } from '../core/page-reader.ts';
import { useAllPages } from '../core/pages.ts';
import { type Action, Field, Select } from '../parts/forms.tsx';
import { Card, Empty, Problem, Tag } from '../parts/layout.tsx';
import { type Column, LongTable, RowsTable } from '../parts/table.tsx';
import { choicesOf, type Filters, hiddenBy, hiddenByEach, NO_FILTERS, percent } from './launch-filters.ts';
import { shareOf } from '../../../../shared/api/share.ts';
import type { LaunchDraft } from './launch-form.ts';

const REREAD_MS = 5_000;
const COUNTS = [1, 2, 4, 8] as const;
const VRAM_GB = [24, 48, 80, 141] as const;
const CPU_CORES = [4, 8, 16, 32, 64, 128] as const;
/** A host keeps some of its memory, so a share is never a power of two. */
const RAM_GB = [12, 24, 48, 96, 192, 384, 768] as const;
const UPTIMES = [0.95, 0.99, 0.995, 0.999] as const;
const FEW_LEFT = 4;

interface OfferingsProps {
  draft: LaunchDraft;
  change(part: Partial<LaunchDraft>): void;
}

export function Offerings({ draft, change, action }: OfferingsProps & { action: Action }) {
  if (draft.tier === 'on_demand') return <OnDemand draft={draft} change={change} action={action} />;
  return (
    <Card title="Contracts">
      <div class="pad row">
        <HowMany draft={draft} change={change} />
      </div>
      <ReservedChoice draft={draft} change={change} />
    </Card>
  );
}

function OnDemand({ draft, change, action }: OfferingsProps & { action: Action }) {
  const { rows, isCut, error, reload } = useAllPages<PricingRow>(pathFor(draft), REREAD_MS);
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
    .filter((row) => hiddenBy(row, draft) === undefined)
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
            <Hidden rows={rows} draft={draft} clear={() => change({ filters: NO_FILTERS })} />
          </>
        )
      }
    >
      <Wishes rows={rows ?? []} draft={draft} change={change} action={action} />
      {error !== undefined && <Problem error={error} retry={reload} />}
      {rows === undefined && <p class="pad quiet">Reading…</p>}
      {rows !== undefined && listed.length === 0 && (
        <Empty title="No offering fits" cli="svc price list">
          {nothingFits(rows, draft)}
        </Empty>
      )}
      {listed.length > 0 && <Choice rows={listed} draft={draft} change={change} />}
    </Card>
  );
}

/** The count of a host that leaves depends on the limit of the launch. A limit that the API would refuse is ignored. */
function pathFor({ hours }: LaunchDraft): string {
  const limit = Number(hours);
  const isLimit = Number.isInteger(limit) && limit >= 1 && limit <= AUTO_TERMINATE_HOURS_MAX;
  return isLimit ? `/v1/pricing?auto_terminate_hours=${limit}` : '/v1/pricing';
}

/** Names each filter with the offerings that it excludes by itself, so that the person sees which one to change. */
function nothingFits(rows: readonly PricingRow[], draft: LaunchDraft): string {
  if (rows.length === 0) return 'Nothing is offered now.';
  const each = hiddenByEach(rows, draft).map(([reason, hidden]) => `${hidden} ${reason}`);
  return `Of ${plural(rows.length, 'offering')}: ${each.join(', ')}.`;
}

interface WishesProps extends OfferingsProps {
  rows: readonly PricingRow[];
  action: Action;
}

function Wishes({ rows, draft, change, action }: WishesProps) {
  const { filters } = draft;
  const set = (part: Partial<Filters>): void => change({ filters: { ...filters, ...part } });
  return (
    <div class="pad stack tight">
      <div class="row" role="group" aria-label="Filters">
        <HowMany draft={draft} change={change} />
        <Select
          label="GPU type"
          value={filters.type}
          options={among(rows, 'gpu_type', filters.type, ['Any type', (type) => type.replaceAll('_', ' ')])}
          onValue={(type) => set({ type })}
        />
        <Select
          label="VRAM per GPU"
          value={filters.vramGb}
          options={orMore(VRAM_GB, filters.vramGb, ' GB')}
          onValue={(vramGb) => set({ vramGb })}
          rule={action.ruleOf('requirements.min_vram_gb')}
        />
        <Select
          label="Region"
          value={filters.region}
          options={among(rows, 'region', filters.region, ['Any region', (region) => region])}
          onValue={(region) => set({ region })}
          rule={action.ruleOf('requirements.regions')}
        />
        <Minimums rows={rows} filters={filters} set={set} action={action} />
        <Field
          label="At most, $/h per GPU"
          class="num short"
          type="number"
          min="0"
          step="0.01"
          value={filters.most}
          onValue={(most) => set({ most })}
        />
      </div>
      <p class="small quiet">
        The launch takes the cheapest free host of the chosen type that meets these filters, except that of the price,
        in the chosen region if there is one. “Only on this host” in the quote takes exactly the chosen one.
      </p>
    </div>
  );
}

interface MinimumsProps {
  rows: readonly PricingRow[];
  filters: Filters;
  set(part: Partial<Filters>): void;
  action: Action;
}

function Minimums({ rows, filters, set, action }: MinimumsProps) {
  return (
    <>
      <Select
        label="CPUs"
        value={filters.cpuCores}
        options={orMore(CPU_CORES, filters.cpuCores)}
        onValue={(cpuCores) => set({ cpuCores })}
        rule={action.ruleOf('requirements.min_cpu_cores')}
      />
      <Select
        label="RAM"
        value={filters.ramGb}
        options={orMore(RAM_GB, filters.ramGb, ' GB')}
        onValue={(ramGb) => set({ ramGb })}
        rule={action.ruleOf('requirements.min_ram_gb')}
      />
      <Select
        label="CUDA"
        value={filters.cuda}
        options={among(rows, 'cuda_version', filters.cuda, ['Any', (version) => `${version} or newer`])}
        onValue={(cuda) => set({ cuda })}
        rule={action.ruleOf('requirements.min_cuda_version')}
      />
      <Select
        label="Uptime"
        value={filters.uptime}
        options={[['', 'Any'], ...uptimes(filters.uptime)]}
        onValue={(uptime) => set({ uptime })}
        rule={action.ruleOf('requirements.min_uptime')}
      />
    </>
  );
}

type Option = readonly [value: string, label: string];

/** The options of a filter whose values are those of the offerings. */
function among(
  rows: readonly PricingRow[],
  field: 'gpu_type' | 'region' | 'cuda_version',
  own: string,
  [any, labelOf]: [any: string, labelOf: (value: string) => string],
): Option[] {
  const values = rows.map((row) => row[field]);
  return [['', any], ...choicesOf(values, own).map((value): Option => [value, labelOf(value)])];
}

function orMore(values: readonly number[], own: string, unit = ''): Option[] {
  const choices = choicesOf(values.map(String), own);
  return [['', 'Any'], ...choices.map((each): Option => [each, `${count(Number(each))}${unit} or more`])];
}

function uptimes(own: string): Option[] {
  return choicesOf(UPTIMES.map(String), own).map((each): Option => [each, `${percent(Number(each))} or more`]);
}

function HowMany({ draft, change }: OfferingsProps) {
  return (
    <>
      <fieldset class="field">
        <legend>GPUs</legend>
        <span class="seg">
          {choicesOf(COUNTS.map(String), String(draft.gpuCount))
            .map(Number)
            .map((each) => (
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
  const perGpu: Column<PricingRow> = {
    title: '1 GPU',
    class: 'num w x',
    cell: ({ price_per_hour: price }) => <span class="dim">{rate(price)}</span>,
  };
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
        { title: 'CPUs · RAM', class: 'num w', cell: (row) => <Gets row={row} gpuCount={gpuCount} /> },
        { title: 'CUDA', class: 'num w', cell: ({ cuda_version: version }) => version ?? <Unknown /> },
        {
          title: 'Uptime',
          class: 'num w',
          cell: ({ uptime }) => (uptime === undefined ? <Unknown /> : percent(uptime)),
        },
        { title: 'Disk up to', class: 'w x', cell: (row) => <span class="dim">{diskOf(row)}</span> },
        { title: 'Free', class: 'num', cell: (row) => <Free row={row} gpuCount={gpuCount} /> },
        ...(gpuCount === 1 ? [] : [perGpu]),
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

/** The word that stands in place of what a host has not reported. */
function Unknown() {
  return <span class="quiet">unknown</span>;
}

/** What the instance gets of its host, like `26 · 240 GB`. */
function Gets({ row, gpuCount }: { row: PricingRow; gpuCount: number }) {
  const { cpuCores, ramGb } = shareOf(row, gpuCount);
  if (cpuCores === undefined && ramGb === undefined) return <Unknown />;
  return (
    <>
      {cpuCores === undefined ? <Unknown /> : count(cpuCores)} ·{' '}
      {ramGb === undefined ? <Unknown /> : `${count(ramGb)} GB`}
    </>
  );
}

function diskOf({ disk_configurable: canChoose, storage_gb: gb }: PricingRow): string {
  if (!canChoose) return 'fixed';
  return gb === 0 ? 'unknown' : `${gb.toLocaleString('en-US')} GB`;
}

interface HiddenProps {
  rows: readonly PricingRow[];
  draft: LaunchDraft;
  clear(): void;
}

function Hidden({ rows, draft, clear }: HiddenProps) {
  const reasons = rows.map((row) => hiddenBy(row, draft)).filter((reason) => reason !== undefined);
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
