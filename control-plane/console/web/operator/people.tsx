// The lists of organisations and of people for operators, who add both here.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { ShownOnce } from '../parts/shown-once.tsx';
import { type Listing, ListingPart, type ListingProps, ListingView } from './listing.tsx';
import { Make, type Making } from './making.tsx';
import { memberOf, ORG, personOf } from './makings.ts';
import { ORG_VERBS, PERSON_VERBS, type Row, textOf } from './verbs.ts';

const ORGS: Listing = {
  title: 'Organisations',
  path: '/admin/v1/orgs?limit=100',
  cli: 'svc-control-plane admin org list',
  id: 'id',
  columns: ['name', 'id', 'suspended_at', 'suspended_reason', 'created_at'],
  what: 'Customers and suppliers.',
  searched: 'name or id',
  page: '/console/operate/orgs',
  verbs: ORG_VERBS,
};

const PEOPLE: Listing = {
  title: 'People',
  path: '/admin/v1/users?limit=100',
  cli: 'svc-control-plane admin user list',
  id: 'id',
  columns: ['name', 'email', 'is_operator', 'has_second_factor', 'orgs', 'blocked_at'],
  what: 'Everybody who has an account.',
  searched: 'e-mail, name or id',
  verbs: PERSON_VERBS,
};

const membersOf = (orgId: string): Listing => ({
  title: 'Members',
  path: `/admin/v1/orgs/${encodeURIComponent(orgId)}/members?limit=100`,
  cli: `svc-control-plane admin org members ${orgId}`,
  id: 'user_id',
  columns: ['email', 'role', 'name', 'has_second_factor', 'created_at'],
  what: 'Nobody can sign in for it.',
});

export function Orgs() {
  const [, goTo] = useLocation();
  const show = (made: Row): void => goTo(`/console/operate/orgs/${encodeURIComponent(textOf(made['id']))}`);
  return <ListingView listing={ORGS} actions={() => <Make making={ORG} made={show} />} />;
}

export function People() {
  const added = useAdded(personOf());
  return <ListingView listing={PEOPLE} {...added} />;
}

/** The members of an organisation, as a part of its page. */
export function Members({ orgId }: { orgId: string }) {
  const { above, actions } = useAdded(personOf(orgId));
  return (
    <>
      {above()}
      <ListingPart
        listing={membersOf(orgId)}
        actions={(reload) => (
          <div class="row">
            <Make making={memberOf(orgId)} made={reload} />
            {actions(reload)}
          </div>
        )}
      />
    </>
  );
}

/** The button that adds a person, and the link of the person who was added, which is shown once. */
function useAdded(making: Making): Required<Pick<ListingProps, 'actions'>> & { above(): ComponentChildren } {
  const [added, setAdded] = useState<Row>();
  const made = (reload: () => Promise<void>) => (answer: Row) => {
    setAdded(answer);
    return reload();
  };
  return {
    above: () =>
      added !== undefined && (
        <ShownOnce
          title={`The link for ${textOf(added['name'])}`}
          secret={textOf(added['url'])}
          what="the link"
          note="It works once and for a day. Whoever has it sets the password of this person."
        />
      ),
    actions: (reload) => <Make making={making} made={made(reload)} />,
  };
}
