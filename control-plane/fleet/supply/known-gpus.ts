// The table of known GPU models: the name from nvidia-smi -> canonical `gpu_type`, architecture and nameplate VRAM.

interface KnownGpu {
  gpu_type: string;
  architecture: string;
  /** The value of the data sheet. Drivers report a little less. */
  vram_gb: number;
  /** The names from nvidia-smi in lower case, without the brand (`NVIDIA`, `Tesla`, `GeForce`, `Quadro`). */
  names: readonly string[];
}

const KNOWN_GPUS: readonly KnownGpu[] = [
  { gpu_type: 'B300', architecture: 'Blackwell', vram_gb: 288, names: ['b300', 'b300 sxm6 ac'] },
  { gpu_type: 'B200', architecture: 'Blackwell', vram_gb: 180, names: ['b200'] },
  { gpu_type: 'GB200', architecture: 'Blackwell', vram_gb: 186, names: ['gb200'] },
  {
    gpu_type: 'RTX_PRO_6000',
    architecture: 'Blackwell',
    vram_gb: 96,
    names: [
      'rtx pro 6000 blackwell workstation edition',
      'rtx pro 6000 blackwell server edition',
      'rtx pro 6000 blackwell max-q workstation edition',
    ],
  },
  { gpu_type: 'RTX_5090', architecture: 'Blackwell', vram_gb: 32, names: ['rtx 5090'] },
  { gpu_type: 'RTX_5080', architecture: 'Blackwell', vram_gb: 16, names: ['rtx 5080'] },
  { gpu_type: 'RTX_5070_TI', architecture: 'Blackwell', vram_gb: 16, names: ['rtx 5070 ti'] },
  { gpu_type: 'RTX_5070', architecture: 'Blackwell', vram_gb: 12, names: ['rtx 5070'] },
  { gpu_type: 'H200', architecture: 'Hopper', vram_gb: 141, names: ['h200'] },
  { gpu_type: 'H200_NVL', architecture: 'Hopper', vram_gb: 141, names: ['h200 nvl'] },
  { gpu_type: 'GH200', architecture: 'Hopper', vram_gb: 96, names: ['gh200 480gb'] },
  { gpu_type: 'GH200_144GB', architecture: 'Hopper', vram_gb: 144, names: ['gh200 144g hbm3e'] },
  { gpu_type: 'H100_SXM', architecture: 'Hopper', vram_gb: 80, names: ['h100 80gb hbm3'] },
  { gpu_type: 'H100_NVL', architecture: 'Hopper', vram_gb: 94, names: ['h100 nvl'] },
  { gpu_type: 'H100_PCIE', architecture: 'Hopper', vram_gb: 80, names: ['h100 pcie'] },
  { gpu_type: 'H20', architecture: 'Hopper', vram_gb: 96, names: ['h20'] },
  { gpu_type: 'L40S', architecture: 'Ada Lovelace', vram_gb: 48, names: ['l40s'] },
  { gpu_type: 'L40', architecture: 'Ada Lovelace', vram_gb: 48, names: ['l40'] },
  { gpu_type: 'L4', architecture: 'Ada Lovelace', vram_gb: 24, names: ['l4'] },
  { gpu_type: 'RTX_6000_ADA', architecture: 'Ada Lovelace', vram_gb: 48, names: ['rtx 6000 ada generation'] },
  { gpu_type: 'RTX_5000_ADA', architecture: 'Ada Lovelace', vram_gb: 32, names: ['rtx 5000 ada generation'] },
  { gpu_type: 'RTX_4000_ADA', architecture: 'Ada Lovelace', vram_gb: 20, names: ['rtx 4000 ada generation'] },
  { gpu_type: 'RTX_4090', architecture: 'Ada Lovelace', vram_gb: 24, names: ['rtx 4090'] },
  { gpu_type: 'RTX_4090_D', architecture: 'Ada Lovelace', vram_gb: 24, names: ['rtx 4090 d'] },
  { gpu_type: 'RTX_4080_SUPER', architecture: 'Ada Lovelace', vram_gb: 16, names: ['rtx 4080 super'] },
  { gpu_type: 'RTX_4080', architecture: 'Ada Lovelace', vram_gb: 16, names: ['rtx 4080'] },
  { gpu_type: 'RTX_4070_TI_SUPER', architecture: 'Ada Lovelace', vram_gb: 16, names: ['rtx 4070 ti super'] },
  { gpu_type: 'RTX_4070_TI', architecture: 'Ada Lovelace', vram_gb: 12, names: ['rtx 4070 ti'] },
  { gpu_type: 'A100_SXM_80GB', architecture: 'Ampere', vram_gb: 80, names: ['a100-sxm4-80gb'] },
  { gpu_type: 'A100_PCIE_80GB', architecture: 'Ampere', vram_gb: 80, names: ['a100 80gb pcie'] },
  { gpu_type: 'A100_SXM_40GB', architecture: 'Ampere', vram_gb: 40, names: ['a100-sxm4-40gb'] },
  { gpu_type: 'A100_PCIE_40GB', architecture: 'Ampere', vram_gb: 40, names: ['a100-pcie-40gb'] },
  { gpu_type: 'A40', architecture: 'Ampere', vram_gb: 48, names: ['a40'] },
  { gpu_type: 'A30', architecture: 'Ampere', vram_gb: 24, names: ['a30'] },
  { gpu_type: 'A16', architecture: 'Ampere', vram_gb: 16, names: ['a16'] },
  { gpu_type: 'A10G', architecture: 'Ampere', vram_gb: 24, names: ['a10g'] },
  { gpu_type: 'A10', architecture: 'Ampere', vram_gb: 24, names: ['a10'] },
  { gpu_type: 'A2', architecture: 'Ampere', vram_gb: 16, names: ['a2'] },
  { gpu_type: 'RTX_A6000', architecture: 'Ampere', vram_gb: 48, names: ['rtx a6000'] },
  { gpu_type: 'RTX_A5000', architecture: 'Ampere', vram_gb: 24, names: ['rtx a5000'] },
  { gpu_type: 'RTX_A4500', architecture: 'Ampere', vram_gb: 20, names: ['rtx a4500'] },
  { gpu_type: 'RTX_A4000', architecture: 'Ampere', vram_gb: 16, names: ['rtx a4000'] },
  { gpu_type: 'RTX_3090_TI', architecture: 'Ampere', vram_gb: 24, names: ['rtx 3090 ti'] },
  { gpu_type: 'RTX_3090', architecture: 'Ampere', vram_gb: 24, names: ['rtx 3090'] },
  { gpu_type: 'RTX_3080_TI', architecture: 'Ampere', vram_gb: 12, names: ['rtx 3080 ti'] },
  { gpu_type: 'RTX_3080', architecture: 'Ampere', vram_gb: 10, names: ['rtx 3080'] },
  { gpu_type: 'V100_SXM_32GB', architecture: 'Volta', vram_gb: 32, names: ['v100-sxm2-32gb', 'v100-sxm3-32gb'] },
  { gpu_type: 'V100_SXM_16GB', architecture: 'Volta', vram_gb: 16, names: ['v100-sxm2-16gb'] },
  { gpu_type: 'V100_PCIE_32GB', architecture: 'Volta', vram_gb: 32, names: ['v100-pcie-32gb', 'v100s-pcie-32gb'] },
  { gpu_type: 'V100_PCIE_16GB', architecture: 'Volta', vram_gb: 16, names: ['v100-pcie-16gb'] },
  { gpu_type: 'RTX_8000', architecture: 'Turing', vram_gb: 48, names: ['rtx 8000'] },
  { gpu_type: 'T4', architecture: 'Turing', vram_gb: 16, names: ['t4'] },
];

/**
 * A driver reserves a part of the memory, which stays below this fraction. If the difference is larger, the board has the same name and other
 * memory.
 */
const DRIVER_SHARE_MAX = 0.12;

/**
 * The type and memory of a GPU. A known model has its canonical type and the VRAM of its data sheet. If the memory that the driver reports
 * differs too much from the data sheet, the reported memory (in whole GiB) counts. An unknown model has its own name as its type, and the
 * reported memory.
 */
export function identifyGpu(name: string, memoryMib: number): { gpu_type: string; vram_gb: number } {
  const plain = name.trim().replace(/^nvidia\s+/i, '');
  const reportedGb = Math.round(memoryMib / 1024);
  const bare = plain.toLowerCase().replace(/^(tesla|geforce|quadro)\s+/, '');
  const known = KNOWN_GPUS.find((gpu) => gpu.names.includes(bare));
  if (known === undefined) {
    return { gpu_type: plain.replaceAll(/[^A-Za-z0-9]+/g, '_').toUpperCase(), vram_gb: reportedGb };
  }
  const difference = Math.abs(memoryMib / 1024 - known.vram_gb) / known.vram_gb;
  return { gpu_type: known.gpu_type, vram_gb: difference <= DRIVER_SHARE_MAX ? known.vram_gb : reportedGb };
}

/** The architecture of a canonical type; undefined for an unknown model. */
export function architectureOf(gpuType: string): string | undefined {
  return KNOWN_GPUS.find((gpu) => gpu.gpu_type === gpuType)?.architecture;
}
