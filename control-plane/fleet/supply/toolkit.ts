// Pure: versions of the NVIDIA Container Toolkit from which a container can escape, according to its published advisories.

/** An escape that affects all versions below `fixed`. */
const ESCAPES: readonly { cve: string; fixed: string }[] = [
  { cve: 'CVE-2024-0132', fixed: '1.16.2' },
  { cve: 'CVE-2025-23359', fixed: '1.17.4' },
  { cve: 'CVE-2025-23266', fixed: '1.17.8' },
  { cve: 'CVE-2025-23267', fixed: '1.17.8' },
];

/** The reason why this version must not run containers of customers; undefined if no escape is known, or if the version is unknown. */
export function toolkitObstacle(version: string): string | undefined {
  const known = ESCAPES.filter(({ fixed }) => isBelow(version, fixed));
  const last = known.at(-1);
  if (last === undefined) return undefined;
  const names = known.map(({ cve }) => cve).join(', ');
  return `The NVIDIA Container Toolkit ${version} of the host lets containers out (${names}): install ${last.fixed} or newer.`;
}

/** A release candidate is below its release. Text that is not a version is below nothing. */
function isBelow(version: string, fixed: string): boolean {
  const [, numbers = '', candidate] = /^(\d+\.\d+\.\d+)([-~]rc)?/.exec(version) ?? [];
  if (numbers === '') return false;
  const [has, needs] = [numbers.split('.').map(Number), fixed.split('.').map(Number)];
  const at = has.findIndex((number, i) => number !== needs[i]);
  return at < 0 ? candidate !== undefined : (has[at] ?? 0) < (needs[at] ?? 0);
}
