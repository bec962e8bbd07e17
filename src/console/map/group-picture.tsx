// The picture of the groups: boxes of squares on a ring, bands between them, and the paths that are broken.

import { useMemo } from "preact/hooks";
import type { GroupPaths } from "../../api/paths/paths.ts";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import type { CountsByNode } from "../nodes/path-counts.ts";
import { waysOf, type Way } from "./band-ways.ts";
import { groupSize, maxNames, namesSize, pitchOf, squareAt } from "./group-boxes.ts";
import { drawnOf, groupWord, isPair, pairFinder, pairKey, pathsIn, type Group, type Pair } from "./groups.ts";
import { nameMarkAt, perSquareOf, squaresOf, type Square } from "./node-squares.tsx";
import {
  centreOf,
  keptFor,
  place,
  ringOrder,
  type Box,
  type Placed,
  type Point,
  type Size,
} from "./places-on-ring.ts";
import {
  labelHeight,
  dimmed,
  point,
  labelOf,
  labelWidth,
  Spoke,
  Band,
  Label,
  GroupBox,
} from "./group-drawings.tsx";

type Props = {
  slug: string;
  sums: GroupPaths;
  /** Undefined if they are too many to draw each. */
  nodes: readonly ListedNode[] | undefined;
  counts: CountsByNode;
  /** The pair that the address names. */
  selected: string | undefined;
  linkTo(pair: Pair): string;
};

/** The ellipse on which boxes stand, their distances, and the least size of the picture, in its units. */
const ground = {
  ellipse: { x: 258, y: 216 },
  gap: 28,
  margin: 16,
  least: { width: 692, height: 420 },
};

/** The hub in the middle, the others in a ring, and the paths between them as bands. */
export function GroupPicture({ slug, sums, nodes, counts, selected, linkTo }: Props) {
  // `hub`: the group that is mostly lighthouses, relays and routers, if there is one.
  const { hub, ring } = drawnOf(sums.groups);
  const findPair = useMemo(() => pairFinder(sums.pairs), [sums]);
  const order = orderOf(slug, ring, findPair);
  // What each group has: its squares, the size of its box, and where the box is.
  const squares = useMemo(() => squaresOf(sums, nodes, counts), [sums, nodes, counts]);
  const perSquare = perSquareOf(sums.groups, nodes);
  const onRing = order.flatMap((name) => ring.find((group) => group.name === name) ?? []);
  const all = hub === undefined ? onRing : [...onRing, hub];
  const pitch = pitchOf(Math.max(...all.map((group) => squares.get(group.name)?.length ?? 0)));
  const sizes = grownSizes(slug, all, (group) =>
    sizeOf(group, group === hub, squares.get(group.name) ?? [], pitch),
  );
  const sizeKey = sizes.map(({ width, height }) => `${width}x${height}`).join();
  // The size of the hub, if there is one, is the last.
  const placed = keptFor(`groups ${onRing.length} ${sizeKey}`, () =>
    place(sizes.slice(0, onRing.length), sizes[onRing.length], ground),
  );
  const boxes = boxesOf(onRing, hub, placed);
  // The paths between groups: bands between those on the ring, spokes between the hub and the others.
  const pairs = sums.pairs.filter(({ from, to }) => from !== to && boxes.has(from) && boxes.has(to));
  const isSpoke = ({ from, to }: Pair) => hub !== undefined && (from === hub.name || to === hub.name);
  const bands = pairs.filter((pair) => !isSpoke(pair));
  const spokes = pairs.filter(isSpoke);
  const bandKey = [...bands, ...spokes]
    .map((pair) => `${pairKey(pair.from, pair.to)} ${labelOf(pair)}`)
    .join();
  const ways = keptFor(`bands ${sizeKey} ${order.join(" ")} ${bandKey}`, () =>
    waysOfBands(bands, spokes, boxes, placed),
  );
  /** A pair is selected, and the group is not one of it. */
  const isDim = (name: Group["name"]) => selected !== undefined && !selected.split(" ").includes(name ?? "");
  const isPairDim = (pair: Pair) => selected !== undefined && !isPair(pair, selected);
  const ends = brokenEnds(sums, boxes, squares, pitch, nodes === undefined ? undefined : hub);
  return (
    <svg
      class="draw"
      viewBox={`0 0 ${Math.ceil(placed.width)} ${Math.ceil(placed.height)}`}
      role="group"
      aria-label="Groups and the paths between them"
    >
      {spokes.map((pair) => (
        <Spoke
          key={pairKey(pair.from, pair.to)}
          pair={pair}
          ends={[boxes.get(pair.from), boxes.get(pair.to)]}
          isDim={isPairDim(pair)}
          href={linkTo(pair)}
        />
      ))}
      {bands.map((pair) => (
        <Band
          key={pairKey(pair.from, pair.to)}
          pair={pair}
          way={ways.get(pairKey(pair.from, pair.to))}
          isDim={isPairDim(pair)}
          href={linkTo(pair)}
        />
      ))}
      {all.map((group) => {
        const box = boxes.get(group.name);
        if (box === undefined) return null;
        return (
          <GroupBox
            key={groupWord(group.name)}
            slug={slug}
            group={group}
            box={box}
            squares={squares.get(group.name) ?? []}
            pitch={pitch}
            isHub={group === hub}
            isDim={isDim(group.name)}
            isHot={selected !== undefined && !isDim(group.name)}
          />
        );
      })}
      {ends.map(({ key, from, to, groups: [one, other] }) => (
        <g
          key={key}
          class={dimmed("", selected !== undefined && !isPair({ from: one, to: other }, selected))}
        >
          <title>{key}</title>
          <path class="broken" d={`M${point(from)}L${point(to)}`} />
          {nodes === undefined ? null : <circle class="broken-end" cx={to.x} cy={to.y} r="7" />}
        </g>
      ))}
      {bands.map((pair) => {
        const key = pairKey(pair.from, pair.to);
        const label = ways.get(key)?.label;
        // Labels of the others would hide what the chosen one is about.
        if (label === undefined || isPairDim(pair)) return null;
        return <Label key={key} pair={pair} at={label} href={linkTo(pair)} isHot={selected !== undefined} />;
      })}
      {perSquare === 1 ? null : <desc>{`A square stands for up to ${perSquare} nodes.`}</desc>}
    </svg>
  );
}

/** The order on the ring. It stays while the groups are the same, however their paths change. */
function orderOf(slug: string, ring: readonly Group[], find: ReturnType<typeof pairFinder>) {
  const names = ring.map(({ name }) => name);
  const weight = (a: Group["name"], b: Group["name"]) => {
    const pair = find(a, b);
    return pair === undefined ? 0 : pathsIn(pair);
  };
  return keptFor(`order ${slug} ${names.join(" ")}`, () => ringOrder(names, weight).order);
}

/** The sizes of boxes, which only grow, so that nothing jumps when a node comes or goes. */
function grownSizes(slug: string, groups: readonly Group[], sizeNow: (group: Group) => Size): Size[] {
  const known = keptFor(`sizes ${slug}`, () => new Map<Group["name"], Size>());
  return groups.map((group) => {
    const now = sizeNow(group);
    const before = known.get(group.name);
    const size = {
      width: Math.max(now.width, before?.width ?? 0),
      height: Math.max(now.height, before?.height ?? 0),
    };
    known.set(group.name, size);
    return size;
  });
}

/** The size that the box of a group needs. A hub has the names of its nodes, if each is drawn. */
function sizeOf(group: Group, isHub: boolean, squares: readonly Square[], pitch: number): Size {
  if (isHub && squares.some(({ name }) => name !== undefined)) return namesSize(squares.length);
  // The letters of "web 58/64".
  const title = groupWord(group.name).length + `${group.nodes}`.length * 2 + 1;
  return groupSize(squares.length, pitch, title, group.broken > 0);
}

function boxesOf(groups: readonly Group[], hub: Group | undefined, { ring, middle }: Placed) {
  const boxes = new Map<Group["name"], Box>();
  for (const [at, group] of groups.entries()) {
    const box = ring[at];
    if (box !== undefined) boxes.set(group.name, box);
  }
  if (hub !== undefined && middle !== undefined) boxes.set(hub.name, middle);
  return boxes;
}

function waysOfBands(
  bands: readonly Pair[],
  spokes: readonly Pair[],
  boxes: ReadonlyMap<Group["name"], Box>,
  { width, height }: Placed,
): ReadonlyMap<string, Way> {
  const wanted = bands.flatMap((pair) => {
    const [from, to] = [boxes.get(pair.from), boxes.get(pair.to)];
    if (from === undefined || to === undefined) return [];
    const label = { width: labelWidth(pair), height: labelHeight };
    // Labels of broken pairs are placed first, then those of many paths.
    const weight = pathsIn(pair) + 1e6 * pair.broken;
    return [{ key: pairKey(pair.from, pair.to), from, to, label, weight }];
  });
  const lines = spokes.flatMap((pair) => {
    const [from, to] = [boxes.get(pair.from), boxes.get(pair.to)];
    return from === undefined || to === undefined ? [] : [[centreOf(from), centreOf(to)] as const];
  });
  return waysOf(wanted, { boxes: [...boxes.values()], size: { width, height }, spokes: lines });
}

type Ends = { key: string; from: Point; to: Point; groups: readonly [Group["name"], Group["name"]] };

/** Where the broken paths begin and end: at the squares of their nodes. `named`: the group whose nodes are drawn as names. */
function brokenEnds(
  { broken }: GroupPaths,
  boxes: ReadonlyMap<Group["name"], Box>,
  squares: ReadonlyMap<Group["name"], Square[]>,
  pitch: number,
  named: Group | undefined,
): Ends[] {
  const endOf = (name: Group["name"], id: number): Point | undefined => {
    const box = boxes.get(name);
    const all = squares.get(name);
    if (box === undefined || all === undefined) return undefined;
    const at = all.findIndex((square) => square.id === id);
    // Where nodes are not drawn each, a path ends in the middle of the box.
    if (at < 0) return centreOf(box);
    if (named !== undefined && name === named.name) return nameMarkAt(box, Math.min(at, maxNames));
    // The middle of a square, which is 2 smaller than the pitch.
    const { x, y } = squareAt(at, all.length, pitch);
    return { x: box.x + x + (pitch - 2) / 2, y: box.y + y + (pitch - 2) / 2 };
  };
  return broken.flatMap(({ node, node_name, group, peer, peer_name, peer_group }) => {
    const [from, to] = [endOf(group, node), endOf(peer_group, peer)];
    if (from === undefined || to === undefined) return [];
    return [
      { key: `${node_name} does not reach ${peer_name}`, from, to, groups: [group, peer_group] as const },
    ];
  });
}
