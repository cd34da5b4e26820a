// The version of CUDA that a driver supports.
import { expect, test } from 'vitest';
import { cudaNumber, cudaOfDriver, cudaText } from '../../../control-plane/fleet/supply/cuda.ts';

// The first driver of each branch is in the release notes of CUDA, table 3.
test.each([
  ['580.65.06', '13.0'],
  ['579.99', '12.9'],
  ['575.51.03', '12.9'],
  ['570.26', '12.8'],
  ['565.57.01', '12.7'],
  ['560.28.03', '12.6'],
  ['550.54.14', '12.4'],
  ['545.23.06', '12.3'],
  ['535.54.03', '12.2'],
  ['525.60.13', '12.0'],
  ['520.61.05', '11.8'],
  ['470.223.02', '11.4'],
  ['450.80.02', '11.0'],
  ['999.1', '13.1'],
])('of the driver %s is %s', (driver, version) => {
  expect(cudaText(cudaOfDriver(driver))).toBe(version);
  expect(cudaOfDriver(driver)).toBe(cudaNumber(version));
});

test.each(['', 'N/A', '449.99', '0'])('of the driver "%s" is unknown', (driver) => {
  expect(cudaOfDriver(driver)).toBe(0);
});

test('sorts as a number, also with a minor version of two digits', () => {
  expect(['13.0', '12.10', '12.9', '11.8'].map(cudaNumber)).toEqual([13_000, 12_100, 12_090, 11_080]);
  expect(cudaText(12_100)).toBe('12.10');
});
