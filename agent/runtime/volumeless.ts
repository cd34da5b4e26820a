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

/** An engine takes about 50 ms for the folder of a volume, and until all are made the workload cannot be ended. Honest images have a few. */
const VOLUMES_MAX = 100;
/** Words of the refusals of an image by which docker-answers.ts knows them. */
export const VOLUME_TOO_LONG = 'the path of a VOLUME is too long';
export const VOLUMES_TOO_MANY = `VOLUMEs, and a host makes ${VOLUMES_MAX} at most`;

/** Undefined if the image declares no volume. @throws Error if it declares too many, or one with a path that is too long: no host can run it */
export function withoutVolumes({ Id, Architecture, Os, Config, RootFS }: LayeredImage): Volumeless | undefined {
  const { Volumes, ...config } = Config;
  const paths = Object.keys(Volumes ?? {});
  if (paths.length === 0) return undefined;
  if (paths.length > VOLUMES_MAX) throw new Error(`the image declares ${paths.length} ${VOLUMES_TOO_MANY}`);
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
  const folders = paths.map((path) => ({ path, archive: folderArchive(path) }));
  return { tag, archive, folders };
}

function folderArchive(path: string): Buffer {
  const name = `${path.replace(/^\/+/, '')}/`;
  if (tarNameOf(name) === undefined) throw new Error(`${VOLUME_TOO_LONG}: ${path}`);
  return tarOf([{ name }]);
}

const BLOCK_BYTES = 512;

export interface TarEntry {
  name: string;
  /** Content of a file; undefined for a folder. */
  content?: string;
  /** Octal digits; 0644 for a file and 0755 for a folder if it is left out. */
  mode?: string;
}

/** A small tar archive (POSIX ustar) for the engine's API. Everything belongs to root. Throws on a name that is too long. */
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
  const parts = tarNameOf(name);
  if (parts === undefined) throw new Error(`${name} is too long for an archive`);
  header.write(parts.name, 0);
  header.write(mode.padStart(7, '0'), 100);
  for (const at of [108, 116]) header.write('0000000', at);
  header.write((sizeBytes ?? 0).toString(8).padStart(11, '0'), 124);
  header.write('00000000000', 136);
  header.write(' '.repeat(8), 148);
  header.write(sizeBytes === null ? '5' : '0', 156);
  header.write('ustar', 257);
  header.write('00', 263);
  header.write(parts.prefix, 345);
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
  return header;
}

/** Sizes of the two fields in the header of a tar entry between which its name is divided, at a slash that is in neither. */
const NAME_BYTES_MAX = 100;
const PREFIX_BYTES_MAX = 155;

/** Undefined if the name does not fit, because it is too long or has no slash at a place where it can be divided. */
function tarNameOf(whole: string): { prefix: string; name: string } | undefined {
  if (Buffer.byteLength(whole) <= NAME_BYTES_MAX) return { prefix: '', name: whole };
  for (let at = whole.indexOf('/', 1); at >= 0; at = whole.indexOf('/', at + 1)) {
    const prefix = whole.slice(0, at);
    const name = whole.slice(at + 1);
    const fits = Buffer.byteLength(prefix) <= PREFIX_BYTES_MAX && Buffer.byteLength(name) <= NAME_BYTES_MAX;
    if (fits && name !== '') return { prefix, name };
  }
  return undefined;
}
