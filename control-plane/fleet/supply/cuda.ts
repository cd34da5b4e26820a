// The version of CUDA that a GPU driver supports. As in CUDA itself, a version is one number: 12080 is 12.8.

/** The branches of the driver, from the release notes of CUDA. A branch that is not listed has the version of the next older one. */
const CUDA_OF_BRANCH: readonly (readonly [branch: number, version: string])[] = [
  [590, '13.1'],
  [580, '13.0'],
  [575, '12.9'],
  [570, '12.8'],
  [565, '12.7'],
  [560, '12.6'],
  [555, '12.5'],
  [550, '12.4'],
  [545, '12.3'],
  [535, '12.2'],
  [530, '12.1'],
  [525, '12.0'],
  [520, '11.8'],
  [515, '11.7'],
  [510, '11.6'],
  [495, '11.5'],
  [470, '11.4'],
  [465, '11.3'],
  [460, '11.2'],
  [455, '11.1'],
  [450, '11.0'],
];

/** The version of CUDA of a driver such as `570.86.15`; 0 if the driver is unknown or older than 450. */
export function cudaOfDriver(driverVersion: string): number {
  const branch = Number.parseInt(driverVersion, 10);
  const known = CUDA_OF_BRANCH.find(([first]) => branch >= first);
  return known === undefined ? 0 : cudaNumber(known[1]);
}

/** `12.8` as a number: 12080. */
export function cudaNumber(version: string): number {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return major * 1_000 + minor * 10;
}

/** 12080 as text: `12.8`. */
export function cudaText(version: number): string {
  return `${Math.floor(version / 1_000)}.${(version % 1_000) / 10}`;
}
