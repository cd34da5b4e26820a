// Pure: NVIDIA Container Toolkits out of which a container is known to get, by their published advisories.

/** An escape in all versions below `fixed`. */
const ESCAPES: readonly { cve: string; fixed: string }[] = [
  { cve: 'CVE-2024-0132', fixed: '1.16.2' },
  { cve: 'CVE-2025-23359', fixed: '1.17.4' },
  { cve: 'CVE-2025-23266', fixed: '1.17.8' },
  { cve: 'CVE-2025-23267', fixed: '1.17.8' },
];

/** Why nobody may be given a container of this toolkit; undefined if nothing is known against it, or the host does not know its version. */
export function toolkitObstacle(version: string): string | undefined {
  const known = ESCAPES.filter(({ fixed }) => isBelow(version, fixed));
  const last = known.at(-1);
  if (last === undefined) return undefined;
  const names = known.map(({ cve }) => cve).join(', ');
  return `The NVIDIA Container Toolkit ${version} of the host lets containers out (${names}): install ${last.fixed} or newer.`;
}

/** A candidate of a version comes before it. What is no version is below nothing. */
function isBelow(version: string, fixed: string): boolean {
  const [, numbers = '', candidate] = /^(\d+\.\d+\.\d+)([-~]rc)?/.exec(version) ?? [];
  if (numbers === '') return false;
  const [has, needs] = [numbers.split('.').map(Number), fixed.split('.').map(Number)];
  const at = has.findIndex((number, i) => number !== needs[i]);
  return at < 0 ? candidate !== undefined : (has[at] ?? 0) < (needs[at] ?? 0);
}
