// Commands of the documents that the test of the manual cannot run in place: why, and which test proves each instead.
import { DATA_NOT_RUN } from './not-run-data.ts';

export interface NotRun {
  /** The command, as it is written. */
  command: string;
  reason: string;
  /** A file, and a text in it: the title of the test. */
  provenBy: readonly [file: string, title: string];
}

const PACKAGE_TEST = 'test/e2e/package.test.ts';
const DEB_TEST = 'test/installer/deb-scripts.test.ts';
const TRY_OUT_TEST = 'test/e2e/try-out.test.ts';
const INSTALL_TEST = 'test/installer/install.test.ts';
const RESTORE_TEST = 'test/e2e/restore.test.ts';
const UNITS_TEST = 'test/systemd/units.test.ts';
const PAYOUTS_TEST = 'test/control-plane/admin/payout-commands.test.ts';
const ADMIN_TEST = 'test/control-plane/admin/admin.test.ts';

const UNPACK = 'tar -xzf gpu-rental-service-*-linux-x64.tar.gz && cd gpu-rental-service-*-linux-x64';
const NEEDS_REPLICAS = 'it needs a model with a deployment';
const NEEDS_PAYOUT = 'it needs a payout that is in flight, which is made once a week';
const NEEDS_PACKAGE = 'it needs the package, which takes a minute to make';
const NEEDS_SYSTEMD = 'it needs systemd and changes the machine';

const CLI_TEST = 'test/e2e/cli.test.ts';
const CLI_TITLE = 'svc launches an instance, waits, logs in, copies, reads its log and ends it';
const NEEDS_NAMES = 'the names of hosts in this test have no address';
const NEEDS_DEPOSITS = 'it needs a chain';
const DEPOSIT_TEST = 'test/control-plane/admin/deposit-commands.store.test.ts';

export const NOT_RUN: readonly NotRun[] = [
  {
    command: 'tar -xzf gpu-rental-service-*-linux-x64.tar.gz && cd gpu-rental-service-*-linux-x64/try-out',
    reason: NEEDS_PACKAGE,
    provenBy: [TRY_OUT_TEST, 'one command brings the control plane up'],
  },
  {
    command: 'docker compose up --build --detach',
    reason: NEEDS_PACKAGE,
    provenBy: [TRY_OUT_TEST, 'one command brings the control plane up'],
  },
  {
    command:
      'docker compose exec control-plane svc-control-plane admin user add --email you@example.com --name You --operator',
    reason: NEEDS_PACKAGE,
    provenBy: [TRY_OUT_TEST, 'a second one prints a link into the console, whose page is served'],
  },
  {
    command: 'svc auth login --base-url https://api.example.com/v1',
    reason: 'somebody has to approve it in a browser',
    provenBy: [
      'test/control-plane/cli/login.test.ts',
      'a person approves the code, and the key is stored for the user alone',
    ],
  },
  {
    command: 'svc instance create --image ubuntu:24.04 --gpu-type H100_SXM --name train --wait -- sleep infinity',
    reason: NEEDS_NAMES,
    provenBy: [CLI_TEST, CLI_TITLE],
  },
  { command: 'svc ssh train -i ~/.ssh/laptop hostname', reason: NEEDS_NAMES, provenBy: [CLI_TEST, CLI_TITLE] },
  { command: 'svc cp -i ~/.ssh/laptop train:/etc/hostname .', reason: NEEDS_NAMES, provenBy: [CLI_TEST, CLI_TITLE] },
  { command: 'svc logs train --tail 10', reason: NEEDS_NAMES, provenBy: [CLI_TEST, CLI_TITLE] },
  {
    command: 'svc instance metrics train',
    reason: NEEDS_NAMES,
    provenBy: [
      'test/control-plane/cli/metrics.test.ts',
      'shows the newest figures of an instance by its name, and of a machine',
    ],
  },
  { command: 'svc instance delete train --wait', reason: NEEDS_NAMES, provenBy: [CLI_TEST, CLI_TITLE] },
  {
    command: `curl -N $API/events -H "$AUTH" -H 'Accept: text/event-stream'`,
    reason: 'it does not end',
    provenBy: [
      'test/control-plane/rental/live.store.test.ts',
      'a reader gets the headers at once, then each change with the instance as its own endpoint shows it',
    ],
  },
  {
    command: 'svc webhook listen --forward http://localhost:3000/hook',
    reason: 'it does not end',
    provenBy: [
      'test/control-plane/cli/webhook-listen.test.ts',
      'posts the public events of instances, signed with the secret that it prints',
    ],
  },
  {
    command: 'svc-control-plane admin payout sent <payout id> --reference 0x5f1c',
    reason: NEEDS_PAYOUT,
    provenBy: [PAYOUTS_TEST, 'payouts are listed, exported, and entered as sent or failed'],
  },
  {
    command: 'svc-control-plane admin payout failed <payout id> --reason "the address refuses transfers"',
    reason: NEEDS_PAYOUT,
    provenBy: [PAYOUTS_TEST, 'payouts are listed, exported, and entered as sent or failed'],
  },
  {
    command:
      'svc-control-plane admin webhook replay <endpoint id> --since 2026-11-23 --reason "the customer has mended its server"',
    reason: 'it needs an endpoint that was not deleted',
    provenBy: [
      'test/control-plane/rental/webhooks/replay.store.test.ts',
      'an operator replays an endpoint with a reason, which stands in the audit journal',
    ],
  },
  {
    command: 'svc-control-plane admin deposit addresses retire --reason "a backup was restored"',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit addresses import addresses.txt',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit addresses list --family solana',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit chains',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit list --waiting',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit show <deposit id>',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit credit <deposit id> --reason "the customer named the transaction"',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit reject <deposit id> --reason "the customer does not know the sender"',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit returned <deposit id> --tx <tx hash> --reason "sent back with 0x5c50..."',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit rescan <deposit id> --tx <tx hash> --reason "paid after 40 days"',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit screening import sanctioned.txt --source "sanctions list of 2026-11-20"',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit addresses list',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit addresses export --chain base',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: 'svc-control-plane admin deposit rewind <chain> --block <block number> --reason "the node was on a fork"',
    reason: NEEDS_DEPOSITS,
    provenBy: [DEPOSIT_TEST, 'every command of the manual does what it says'],
  },
  {
    command: `curl -s $API/deposits -H "$AUTH" -H "$JSON" -d '{"asset":"usdc","chain":"base","amount_usd_cents":2500}'`,
    reason: NEEDS_DEPOSITS,
    provenBy: ['test/contract/deposits.store.test.ts', 'answers with all that a payer needs'],
  },
  {
    command: 'curl -s $API/deposits/<deposit id> -H "$AUTH"',
    reason: NEEDS_DEPOSITS,
    provenBy: ['test/contract/deposits.store.test.ts', 'a deposit is read by its organisation'],
  },
  {
    command: 'svc-control-plane admin refund <instance id> --reason "slow disk" --reference "ticket 7"',
    reason: 'the instance of the reader still runs',
    provenBy: [
      'test/control-plane/admin/correction-commands.test.ts',
      'a charge is refunded, a credit is given and a balance is corrected, each with an entry of the audit',
    ],
  },
  {
    command: 'svc-control-plane admin model list',
    reason: NEEDS_REPLICAS,
    provenBy: [ADMIN_TEST, 'models on the fleet are listed, shown, scaled and drained'],
  },
  {
    command: 'svc-control-plane admin model upstreams',
    reason: 'it needs a model',
    provenBy: ['test/control-plane/models/servers-out.test.ts', 'is what operators see of the server'],
  },
  {
    command: 'svc-control-plane admin model show <model>:economy',
    reason: NEEDS_REPLICAS,
    provenBy: [ADMIN_TEST, 'models on the fleet are listed, shown, scaled and drained'],
  },
  {
    command: 'svc-control-plane admin model replicas <model>:economy',
    reason: NEEDS_REPLICAS,
    provenBy: [ADMIN_TEST, 'models on the fleet are listed, shown, scaled and drained'],
  },
  {
    command: 'svc-control-plane admin model scale <model>:economy --min 1 --max 2',
    reason: NEEDS_REPLICAS,
    provenBy: [ADMIN_TEST, 'models on the fleet are listed, shown, scaled and drained'],
  },
  {
    command: 'svc-control-plane admin model drain <replica id>',
    reason: NEEDS_REPLICAS,
    provenBy: [ADMIN_TEST, 'models on the fleet are listed, shown, scaled and drained'],
  },
  {
    command: 'npm ci && npm run demo',
    reason: 'it is a run of its own, with its own engine',
    provenBy: ['test/e2e/demo.test.ts', 'with --once it walks through every step, exits 0, and nothing is left'],
  },
  {
    command: 'npm ci && npm test',
    reason: 'it is the command that runs this test',
    provenBy: ['.ci/run', 'npm ci && npm test'],
  },
  {
    command: 'npm run fix',
    reason: 'it changes the sources',
    provenBy: ['test/kit/lanes.ts', "command: ['oxfmt', '--check', '.']"],
  },
  {
    command: 'npx vitest run --project walls',
    reason: 'it is a run of the tests',
    provenBy: ['test/kit/lanes.ts', "vitest('walls')"],
  },
  {
    command: 'npx vitest run --project unit test/shared/money.test.ts',
    reason: 'it is a run of the tests',
    provenBy: ['test/kit/lanes.ts', "vitest('unit')"],
  },
  {
    command: 'npm run check',
    reason: 'it is a run of the checks',
    provenBy: ['test/kit/lanes.ts', 'export const LANES'],
  },
  {
    command: 'npm run package',
    reason: 'it takes long, and another test makes the package',
    provenBy: [PACKAGE_TEST, 'the tarball is the same for the same sources, and its sum is beside it'],
  },
  {
    command: 'apt-get install ./gpu-rental-control-plane_*_amd64.deb',
    reason: NEEDS_SYSTEMD,
    provenBy: [DEB_TEST, 'an installation brings the control plane its user, and enables the unit'],
  },
  {
    command: 'apt-get install ./gpu-rental-agent_*_amd64.deb',
    reason: NEEDS_SYSTEMD,
    provenBy: [DEB_TEST, 'the agent is root, so it gets no user; a user that exists stays'],
  },
  {
    command: 'apt-get install ./gpu-rental-cli_*_amd64.deb',
    reason: 'it changes the machine',
    provenBy: [
      'test/e2e/deb.test.ts',
      'dpkg installs the command line below a root, where it runs without Node, and removes all of it',
    ],
  },
  {
    command: 'svc-agent enroll --url https://api.example.com --token <enrollment token>',
    reason: 'the host of this test is enrolled already, with its own configuration',
    provenBy: [PACKAGE_TEST, 'where there is no Node, install.sh puts the agent there; enrolled, it carries a rental'],
  },
  {
    command: 'systemctl start svc-agent',
    reason: NEEDS_SYSTEMD,
    provenBy: [UNITS_TEST, 'the programs that the units start exist'],
  },
  {
    command: UNPACK,
    reason: 'there is no package in place',
    provenBy: [PACKAGE_TEST, 'where there is no Node, install.sh puts the agent there; enrolled, it carries a rental'],
  },
  {
    command: './install.sh control-plane',
    reason: NEEDS_SYSTEMD,
    provenBy: [INSTALL_TEST, 'brings the control plane its user, unit and configuration'],
  },
  {
    command: './install.sh agent --url https://api.example.com --token <enrollment token>',
    reason: NEEDS_SYSTEMD,
    provenBy: [PACKAGE_TEST, 'where there is no Node, install.sh puts the agent there; enrolled, it carries a rental'],
  },
  {
    command: './install.sh agent',
    reason: NEEDS_SYSTEMD,
    provenBy: [
      PACKAGE_TEST,
      'an upgrade restarts the supervisor only: sessions go on, also when the old version is gone',
    ],
  },
  {
    command: './install.sh remove agent',
    reason: NEEDS_SYSTEMD,
    provenBy: [PACKAGE_TEST, 'it is removed by force only while a rental runs, and leaves nothing on the engine'],
  },
  {
    command: 'systemctl start svc-control-plane',
    reason: NEEDS_SYSTEMD,
    provenBy: [UNITS_TEST, 'the programs that the units start exist'],
  },
  {
    command: 'systemctl stop svc-control-plane',
    reason: NEEDS_SYSTEMD,
    provenBy: [UNITS_TEST, 'a stop signals the main process only'],
  },
  {
    command: 'systemctl restart svc-control-plane',
    reason: NEEDS_SYSTEMD,
    provenBy: ['test/control-plane/main.test.ts', 'one signal ends it in order, with exit code 0'],
  },
  {
    command: 'systemctl reload svc-control-plane',
    reason: NEEDS_SYSTEMD,
    provenBy: ['test/control-plane/main.test.ts', "SIGHUP and the operator's command read the files again"],
  },
  ...DATA_NOT_RUN,
  {
    command: 'svc-control-plane admin outage show <outage id>',
    reason: 'no host dies in this test',
    provenBy: ['test/control-plane/money/outages.store.test.ts', 'the commands list outages and show one'],
  },
  {
    command: 'svc-control-plane admin credit release <credit id> --note "the host was down"',
    reason: 'a credit is held only above a bound of dollars a day',
    provenBy: [ADMIN_TEST, "trust: 'adminTrustTenant'"],
  },
  {
    command: 'svc-control-plane admin credit refuse <credit id> --note "the tenant had ended it"',
    reason: 'a credit is held only above a bound of dollars a day',
    provenBy: [ADMIN_TEST, "trust: 'adminTrustTenant'"],
  },
  {
    command: 'svc-control-plane admin machine unify <machine id>',
    reason: 'it is refused unless a copy of the host has linked',
    provenBy: [
      'test/control-plane/fleet/copies.store.test.ts',
      'a copied machine is offered no longer until the operator says that one is left',
    ],
  },
  {
    command: 'svc-control-plane admin machine lost <machine id> --reason "its disk died"',
    reason: 'it is refused while the host is connected',
    provenBy: [
      'test/control-plane/fleet/lost-host.store.test.ts',
      'a host that lost its disk while a GPU was rented is given up by the operator, and enrols again',
    ],
  },
  {
    command: 'svc-control-plane admin machine remove-unknown <machine id> <workload id>',
    reason: 'it is refused unless the machine runs a container that the database does not know',
    provenBy: [RESTORE_TEST, "operator('admin', 'machine', 'remove-unknown'"],
  },
  {
    command: 'svc-control-plane admin credit trust <org id> --note "its image had the fault"',
    reason: 'it is refused unless the tenant is flagged',
    provenBy: [ADMIN_TEST, "trust: 'adminTrustTenant'"],
  },
];
