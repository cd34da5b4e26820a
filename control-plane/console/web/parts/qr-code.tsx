// A QR code as one path of an SVG picture. The library is loaded with the first code.
import { useEffect, useState } from 'preact/hooks';
import { Note } from './layout.tsx';

interface Picture {
  size: number;
  path: string;
}

/** `text` can be read by a camera. Show the same text beside it for people without one. */
export function QrCode({ text, label }: { text: string; label: string }) {
  const [code, setCode] = useState<Picture | 'missing'>();
  useEffect(() => {
    let isShown = true;
    const set = (made: Picture | 'missing'): void => {
      if (isShown) setCode(made);
    };
    void pictureOf(text).then(set, () => set('missing'));
    return () => {
      isShown = false;
    };
  }, [text]);
  if (code === undefined) return null;
  if (code === 'missing')
    return (
      <Note tone="warn">
        The QR code cannot be drawn, because a part of the console could not be loaded. Copy the text instead:{' '}
        <code class="brk">{text}</code>
      </Note>
    );
  return (
    <svg
      class="qr"
      role="img"
      aria-label={label}
      viewBox={`0 0 ${code.size} ${code.size}`}
      shape-rendering="crispEdges"
    >
      <rect width={code.size} height={code.size} fill="#fff" />
      <path d={code.path} fill="#000" />
    </svg>
  );
}

async function pictureOf(text: string): Promise<Picture> {
  const { encode } = await import('uqr');
  const { data, size } = encode(text, { border: 2 });
  const dots = data.flatMap((row, y) => row.flatMap((isDark, x) => (isDark ? [`M${x} ${y}h1v1h-1z`] : [])));
  return { size, path: dots.join('') };
}
