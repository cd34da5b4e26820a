// Makes a copy of an image without the volumes that it declares, so that all writes of a container count against its disk size.
// Neither a Dockerfile nor the Engine's API can remove a VOLUME. But an image is only a list of layers with a configuration, so the
// copy lists the same layers with a changed configuration.

/** The parts of an image's description that the copy needs. */
export interface LayeredImage {
  Id: string;
  Architecture: string;
  Os: string;
  Config: { Volumes?: Record<string, unknown> | null };
  RootFS: { Layers?: string[] | undefined };
}

export interface Volumeless {
  /** Name of the copy. It is the same each time for the same original image. */
  tag: string;
  /** Archive for the engine to load. It contains no layers, because the engine has them already and finds them by digest. */
  archive: Buffer;
  /** The mount points of the volumes, which need not exist in the image, each with an archive that creates the folder. */
  folders: { path: string; archive: Buffer }[];
}

/** The tag of the copy; `imageId` is the engine's id of the original. */
export function tagWithoutVolumes(imageId: string): string {
  return `svc-without-volumes:${imageId.replace('sha256:', '')}`;
}

/** Undefined if the image declares no volume. */
export function withoutVolumes({ Id, Architecture, Os, Config, RootFS }: LayeredImage): Volumeless | undefined {
  const { Volumes, ...config } = Config;
  const paths = Object.keys(Volumes ?? {});
  if (paths.length === 0) return undefined;
  const layers = RootFS.Layers ?? [];
  const image = {
    architecture: Architecture,
    os: Os,
    config,
    rootfs: { type: 'layers', diff_ids: layers },
  };
  const tag = tagWithoutVolumes(Id);
  const manifest = [{ Config: 'config.json', RepoTags: [tag], Layers: layers.map((_, i) => `${i}.tar`) }];
  const archive = tarOf([
    { name: 'manifest.json', content: JSON.stringify(manifest) },
    { name: 'config.json', content: JSON.stringify(image) },
  ]);
  const folders = paths.map((path) => ({ path, archive: tarOf([{ name: `${path.replace(/^\/+/, '')}/` }]) }));
  return { tag, archive, folders };
}

const BLOCK_BYTES = 512;
/** Size of the name field in the header of a tar entry. */
const NAME_BYTES_MAX = 100;

export interface TarEntry {
  name: string;
  /** Content of a file; undefined for a folder. */
  content?: string;
  /** Octal digits; 0644 for a file and 0755 for a folder if it is left out. */
  mode?: string;
}

/** A small tar archive (POSIX ustar) for the engine's API. Everything belongs to root. Throws on a name longer than 100 bytes. */
export function tarOf(entries: readonly TarEntry[]): Buffer {
  const blocks = entries.flatMap(({ name, content, mode = content === undefined ? '0755' : '0644' }) => {
    const bytes = Buffer.from(content ?? '');
    const padding = Buffer.alloc((BLOCK_BYTES - (bytes.length % BLOCK_BYTES)) % BLOCK_BYTES);
    return [headerOf(name, mode, content === undefined ? null : bytes.length), bytes, padding];
  });
  return Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK_BYTES)]);
}

function headerOf(name: string, mode: string, sizeBytes: number | null): Buffer {
  const header = Buffer.alloc(BLOCK_BYTES);
  if (Buffer.byteLength(name) > NAME_BYTES_MAX) throw new Error(`${name} is too long for an archive`);
  header.write(name, 0);
  header.write(mode.padStart(7, '0'), 100);
  for (const at of [108, 116]) header.write('0000000', at);
  header.write((sizeBytes ?? 0).toString(8).padStart(11, '0'), 124);
  header.write('00000000000', 136);
  header.write(' '.repeat(8), 148);
  header.write(sizeBytes === null ? '5' : '0', 156);
  header.write('ustar', 257);
  header.write('00', 263);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return header;
}
