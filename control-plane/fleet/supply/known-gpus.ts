// Known GPU models: what nvidia-smi prints -> canonical `gpu_type`, architecture and nameplate VRAM. Data, longest match first.

interface KnownGpu {
  /** Lower-case part of the name that nvidia-smi prints. */
  match: string;
  gpu_type: string;
  architecture: string;
  vram_gb: number;
}

const KNOWN_GPUS: readonly KnownGpu[] = [
  { match: 'h100 80gb hbm3', gpu_type: 'H100_SXM', architecture: 'Hopper', vram_gb: 80 },
  { match: 'h100 nvl', gpu_type: 'H100_NVL', architecture: 'Hopper', vram_gb: 94 },
  { match: 'h100 pcie', gpu_type: 'H100_PCIE', architecture: 'Hopper', vram_gb: 80 },
  { match: 'h200 nvl', gpu_type: 'H200_NVL', architecture: 'Hopper', vram_gb: 141 },
  { match: 'h200', gpu_type: 'H200', architecture: 'Hopper', vram_gb: 141 },
  { match: 'gh200', gpu_type: 'GH200', architecture: 'Hopper', vram_gb: 96 },
  { match: 'b200', gpu_type: 'B200', architecture: 'Blackwell', vram_gb: 180 },
  { match: 'rtx pro 6000 blackwell', gpu_type: 'RTX_PRO_6000', architecture: 'Blackwell', vram_gb: 96 },
  { match: 'rtx 5090', gpu_type: 'RTX_5090', architecture: 'Blackwell', vram_gb: 32 },
  { match: 'rtx 5080', gpu_type: 'RTX_5080', architecture: 'Blackwell', vram_gb: 16 },
  { match: 'a100-sxm4-80gb', gpu_type: 'A100_SXM_80GB', architecture: 'Ampere', vram_gb: 80 },
  { match: 'a100 80gb pcie', gpu_type: 'A100_PCIE_80GB', architecture: 'Ampere', vram_gb: 80 },
  { match: 'a100-sxm4-40gb', gpu_type: 'A100_SXM_40GB', architecture: 'Ampere', vram_gb: 40 },
  { match: 'a100-pcie-40gb', gpu_type: 'A100_PCIE_40GB', architecture: 'Ampere', vram_gb: 40 },
  { match: 'l40s', gpu_type: 'L40S', architecture: 'Ada Lovelace', vram_gb: 48 },
  { match: 'l40', gpu_type: 'L40', architecture: 'Ada Lovelace', vram_gb: 48 },
  { match: 'nvidia l4', gpu_type: 'L4', architecture: 'Ada Lovelace', vram_gb: 24 },
  { match: 'rtx 6000 ada', gpu_type: 'RTX_6000_ADA', architecture: 'Ada Lovelace', vram_gb: 48 },
  { match: 'rtx 4090', gpu_type: 'RTX_4090', architecture: 'Ada Lovelace', vram_gb: 24 },
  { match: 'rtx 4080', gpu_type: 'RTX_4080', architecture: 'Ada Lovelace', vram_gb: 16 },
  { match: 'rtx a6000', gpu_type: 'RTX_A6000', architecture: 'Ampere', vram_gb: 48 },
  { match: 'rtx a5000', gpu_type: 'RTX_A5000', architecture: 'Ampere', vram_gb: 24 },
  { match: 'rtx a4000', gpu_type: 'RTX_A4000', architecture: 'Ampere', vram_gb: 16 },
  { match: 'nvidia a40', gpu_type: 'A40', architecture: 'Ampere', vram_gb: 48 },
  { match: 'nvidia a10g', gpu_type: 'A10G', architecture: 'Ampere', vram_gb: 24 },
  { match: 'nvidia a10', gpu_type: 'A10', architecture: 'Ampere', vram_gb: 24 },
  { match: 'rtx 3090', gpu_type: 'RTX_3090', architecture: 'Ampere', vram_gb: 24 },
  { match: 'v100-sxm2-32gb', gpu_type: 'V100_SXM_32GB', architecture: 'Volta', vram_gb: 32 },
  { match: 'v100-sxm2-16gb', gpu_type: 'V100_SXM_16GB', architecture: 'Volta', vram_gb: 16 },
  { match: 'tesla t4', gpu_type: 'T4', architecture: 'Turing', vram_gb: 16 },
];

/** A model that is not in the table keeps its own name as its type, and its VRAM as the driver reports it (rounded to GiB). */
export function identifyGpu(name: string, memoryMib: number): { gpu_type: string; vram_gb: number } {
  const lower = name.toLowerCase();
  const known = KNOWN_GPUS.filter((gpu) => lower.includes(gpu.match)).toSorted(
    (a, b) => b.match.length - a.match.length,
  )[0];
  if (known !== undefined) return { gpu_type: known.gpu_type, vram_gb: known.vram_gb };
  const plain = name.replace(/^nvidia\s+/i, '').replaceAll(/[^A-Za-z0-9]+/g, '_');
  return { gpu_type: plain.toUpperCase(), vram_gb: Math.round(memoryMib / 1024) };
}

/** Architecture of a canonical type, undefined for a model that is not in the table. */
export function architectureOf(gpuType: string): string | undefined {
  return KNOWN_GPUS.find((gpu) => gpu.gpu_type === gpuType)?.architecture;
}
