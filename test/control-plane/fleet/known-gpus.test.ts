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
  ['NVIDIA B300', 281_000, 'B300', 288],
  ['NVIDIA B300 SXM6 AC', 281_000, 'B300', 288],
  ['NVIDIA GB200', 189_471, 'GB200', 186],
  ['NVIDIA RTX PRO 6000 Blackwell Workstation Edition', 97_887, 'RTX_PRO_6000', 96],
  ['NVIDIA RTX PRO 6000 Blackwell Server Edition', 97_887, 'RTX_PRO_6000', 96],
  ['NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition', 97_887, 'RTX_PRO_6000', 96],
  ['NVIDIA GeForce RTX 5090', 32_607, 'RTX_5090', 32],
  ['NVIDIA GeForce RTX 5080', 16_303, 'RTX_5080', 16],
  ['NVIDIA GeForce RTX 5070 Ti', 16_303, 'RTX_5070_TI', 16],
  ['NVIDIA GeForce RTX 5070', 12_227, 'RTX_5070', 12],
  ['NVIDIA H200 NVL', 140_052, 'H200_NVL', 141],
  ['NVIDIA GH200 480GB', 95_354, 'GH200', 96],
  ['NVIDIA GH200 144G HBM3E', 143_032, 'GH200_144GB', 144],
  ['NVIDIA H20', 95_354, 'H20', 96],
  ['NVIDIA RTX 6000 Ada Generation', 47_677, 'RTX_6000_ADA', 48],
  ['NVIDIA GeForce RTX 5000 Ada Generation', 31_784, 'RTX_5000_ADA', 32],
  ['NVIDIA GeForce RTX 4000 Ada Generation', 19_865, 'RTX_4000_ADA', 20],
  ['NVIDIA GeForce RTX 4090 D', 23_838, 'RTX_4090_D', 24],
  ['NVIDIA GeForce RTX 4080', 15_892, 'RTX_4080', 16],
  ['NVIDIA GeForce RTX 4070 Ti SUPER', 15_892, 'RTX_4070_TI_SUPER', 16],
  ['NVIDIA GeForce RTX 4070 Ti', 11_919, 'RTX_4070_TI', 12],
  ['NVIDIA A100 80GB PCIe', 79_462, 'A100_PCIE_80GB', 80],
  ['NVIDIA A100-SXM4-40GB', 39_731, 'A100_SXM_40GB', 40],
  ['NVIDIA A40', 47_677, 'A40', 48],
  ['NVIDIA A30', 23_838, 'A30', 24],
  ['NVIDIA A16', 15_892, 'A16', 16],
  ['NVIDIA A2', 15_892, 'A2', 16],
  ['NVIDIA RTX A6000', 47_677, 'RTX_A6000', 48],
  ['NVIDIA RTX A5000', 23_838, 'RTX_A5000', 24],
  ['NVIDIA RTX A4500', 19_865, 'RTX_A4500', 20],
  ['NVIDIA RTX A4000', 15_892, 'RTX_A4000', 16],
  ['NVIDIA GeForce RTX 3090 Ti', 23_838, 'RTX_3090_TI', 24],
  ['NVIDIA GeForce RTX 3080 Ti', 11_919, 'RTX_3080_TI', 12],
  ['NVIDIA GeForce RTX 3080', 9_932, 'RTX_3080', 10],
  ['Quadro RTX 8000', 47_677, 'RTX_8000', 48],
  ['Tesla V100-SXM2-16GB', 16_384, 'V100_SXM_16GB', 16],
  ['Tesla V100-SXM2-32GB', 32_510, 'V100_SXM_32GB', 32],
  ['Tesla V100S-PCIE-32GB', 32_510, 'V100_PCIE_32GB', 32],
  ['Tesla V100-PCIE-16GB', 16_160, 'V100_PCIE_16GB', 16],
])('%s with %d MiB is a %s of %d GB', (name, memoryMib, gpuType, vramGb) => {
  expect(identifyGpu(name, memoryMib)).toEqual({ gpu_type: gpuType, vram_gb: vramGb });
  // The data sheet counts also where a driver keeps a tenth of the memory for itself.
  expect(identifyGpu(name, vramGb * 1024 * 0.9).vram_gb).toBe(vramGb);
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
