// The fleet: the nodes of each group as squares.

/**
 * The nodes of a group: how many are online; and by how they are drawn: `on` is well, `part` has a relayed path, `need` needs an
 * administrator, `off` is away.
 */
export type FleetGroup = {
  name: string;
  href: string;
  online: number;
  on: number;
  part: number;
  need: number;
  off: number;
};

const kinds = ["need", "part", "on", "off"] as const;
/** The class of a square. */
const squareOf = { need: "x", part: "p", on: undefined, off: "o" };
/** More squares cannot be told apart, and take too long to draw. */
const maxSquares = 1500;

/** How many nodes a square stands for, so that all fit. */
export const perSquare = (groups: readonly FleetGroup[]): number =>
  Math.ceil(groups.reduce((sum, group) => sum + allIn(group), 0) / maxSquares) || 1;
const allIn = ({ on, part, need, off }: FleetGroup) => on + part + need + off;

/** One square a node, by group: nodes that need an administrator first. A square of many nodes is as bad as its kind, however few they are. */
export function Fleet({ groups }: { groups: readonly FleetGroup[] }) {
  const per = perSquare(groups);
  return (
    <div class="strip">
      {groups.map((group) => {
        const { online } = group;
        const all = allIn(group);
        return (
          <a key={group.name} href={group.href} title={`${group.name}: ${online} of ${all} online`}>
            <span class="waffle" aria-hidden="true">
              {kinds.map((kind) =>
                Array.from({ length: Math.ceil(group[kind] / per) }, (_, at) => (
                  <i key={`${kind}${at}`} class={squareOf[kind]} />
                )),
              )}
            </span>
            <span class="gname">
              <bdi class="cut">{group.name}</bdi>{" "}
              <span class="faint">
                {online}/{all}
              </span>
            </span>
          </a>
        );
      })}
    </div>
  );
}
