// Known GPUs: the names that nvidia-smi prints with the memory that it reports, and unknown models.
import { expect, test } from 'vitest';
import { architectureOf, identifyGpu } from '../../../control-plane/fleet/supply/known-gpus.ts';

// Specification 2.3: gpu_type is a canonical identifier, vram_gb the nameplate VRAM of one GPU.
test.each([
  ['NVIDIA H100 80GB HBM3', 81_559, 'H100_SXM', 80],
  ['NVIDIA H100 PCIe', 81_559, 'H100_PCIE', 80],
  ['NVIDIA H100 NVL', 95_830, 'H100_NVL', 94],
  ['NVIDIA H200', 143_771, 'H200', 141],
  ['NVIDIA B200', 183_359, 'B200', 180],
  ['NVIDIA A100-SXM4-80GB', 81_920, 'A100_SXM_80GB', 80],
  ['NVIDIA A100-PCIE-40GB', 40_960, 'A100_PCIE_40GB', 40],
  ['NVIDIA A10', 23_028, 'A10', 24],
  ['NVIDIA A10G', 23_028, 'A10G', 24],
  ['NVIDIA L4', 23_034, 'L4', 24],
  ['NVIDIA L40', 46_068, 'L40', 48],
  ['NVIDIA L40S', 46_068, 'L40S', 48],
  ['NVIDIA GeForce RTX 4090', 24_564, 'RTX_4090', 24],
  ['NVIDIA GeForce RTX 4080 SUPER', 16_376, 'RTX_4080_SUPER', 16],
  ['NVIDIA GeForce RTX 3090', 24_576, 'RTX_3090', 24],
  ['Tesla T4', 15_360, 'T4', 16],
  ['Tesla V100-SXM2-16GB', 16_384, 'V100_SXM_16GB', 16],
  ['Tesla V100-SXM2-32GB', 32_510, 'V100_SXM_32GB', 32],
  ['Tesla V100S-PCIE-32GB', 32_510, 'V100_PCIE_32GB', 32],
  ['Tesla V100-PCIE-16GB', 16_160, 'V100_PCIE_16GB', 16],
])('%s with %d MiB is a %s of %d GB', (name, memoryMib, gpuType, vramGb) => {
  expect(identifyGpu(name, memoryMib)).toEqual({ gpu_type: gpuType, vram_gb: vramGb });
  expect(architectureOf(gpuType)).toMatch(/^[A-Z]/);
});

// Specification 2.3: A model that nobody knows has a gpu_type too, made of its own name.
test.each([
  ['NVIDIA GeForce RTX 5090 Laptop GPU', 24_463, 'GEFORCE_RTX_5090_LAPTOP_GPU', 24],
  ['NVIDIA A100-SXM-64GB', 65_536, 'A100_SXM_64GB', 64],
  ['NVIDIA GeForce GTX 1080 Ti', 11_264, 'GEFORCE_GTX_1080_TI', 11],
])('%s is unknown and keeps its own name', (name, memoryMib, gpuType, vramGb) => {
  expect(identifyGpu(name, memoryMib)).toEqual({ gpu_type: gpuType, vram_gb: vramGb });
  expect(architectureOf(gpuType)).toBeUndefined();
});

test('a board with more memory than its data sheet is described by its real memory', () => {
  expect(identifyGpu('NVIDIA GeForce RTX 4090', 49_140)).toEqual({ gpu_type: 'RTX_4090', vram_gb: 48 });
});
