// The list of the organisation's events, newest first.
import type { AccountEvent } from '../../../../shared/api/event.ts';
import { useLiveList } from '../core/data.ts';
import { time } from '../core/format.ts';
import { Empty, Head } from '../parts/layout.tsx';
import { type Column, LiveTable } from '../parts/table.tsx';

const COLUMNS: readonly Column<AccountEvent>[] = [
  { title: 'What', cell: ({ type }) => <code>{type}</code> },
  { title: 'When (UTC)', cell: ({ created_at: at }) => <time dateTime={at}>{time(at)}</time> },
  { title: 'Which', class: 'w', cell: ({ resource_id: id }) => <code>{id}</code> },
  { title: 'Why', class: 'w', cell: ({ reason }) => reason ?? '' },
];

export function Activity() {
  const list = useLiveList<AccountEvent>({ path: '/v1/events?limit=100', idOf: ({ id }) => id, type: '*' });
  return (
    <>
      <Head title="Activity" same={{ cli: 'svc api GET /v1/events', curl: { path: '/v1/events?limit=100' } }} />
      <LiveTable
        caption="Activity"
        list={list}
        columns={COLUMNS}
        empty={<Empty title="Nothing happened yet">Every change of your resources is listed here.</Empty>}
      />
    </>
  );
}
