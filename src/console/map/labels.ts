// Which names the map writes, and where, so that none covers another or a dot. A name that finds no place is left out: it is
// shown under the pointer, and in the table. Pure.

export type Box = { x: number; y: number; width: number; height: number };
/** Half the size of the dot, in units of the drawing. */
type Wanted = { key: string; text: string; x: number; y: number; size: number };
export type Label = { key: string; text: string; x: number; y: number; anchor: "start" | "middle" | "end" };

/** A letter of the system font is about so wide, as a part of its size. */
const letterWidth = 0.6;
const gap = 3;

/**
 * The first ones are placed first. `dots`: names do not lie on them. `fontSize`: in units of the drawing. Positions are those
 * of the text's base line.
 */
export function placeLabels(
  wanted: readonly Wanted[],
  dots: readonly Pick<Wanted, "key" | "x" | "y" | "size">[],
  fontSize: number,
  taken: readonly Box[] = [],
): Label[] {
  const boxes = [...taken];
  const labels: Label[] = [];
  for (const each of wanted) {
    const others = dots.filter(({ key }) => key !== each.key);
    const found = places(each, fontSize).find(
      ({ box }) =>
        !boxes.some((other) => overlap(box, other)) && !others.some((dot) => overlap(box, boxOf(dot))),
    );
    if (found === undefined) continue;
    boxes.push(found.box);
    labels.push(found.label);
  }
  return labels;
}

/** Below the dot, above it, right of it, left of it. */
function places({ key, text, x, y, size }: Wanted, fontSize: number): { label: Label; box: Box }[] {
  const width = text.length * fontSize * letterWidth;
  const place = (left: number, top: number, anchor: Label["anchor"]) => {
    const at = anchor === "middle" ? left + width / 2 : anchor === "end" ? left + width : left;
    const box = { x: left, y: top, width, height: fontSize };
    return { box, label: { key, text, x: at, y: top + 0.85 * fontSize, anchor } };
  };
  const away = size + gap;
  return [
    place(x - width / 2, y + away, "middle"),
    place(x - width / 2, y - away - fontSize, "middle"),
    place(x + away, y - fontSize / 2, "start"),
    place(x - away - width, y - fontSize / 2, "end"),
  ];
}

const boxOf = ({ x, y, size }: Pick<Wanted, "x" | "y" | "size">): Box => ({
  x: x - size,
  y: y - size,
  width: 2 * size,
  height: 2 * size,
});

function overlap(a: Box, b: Box): boolean {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}
