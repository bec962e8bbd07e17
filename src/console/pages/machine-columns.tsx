// The columns that the list of machines can have, and which of them the address chooses.

import type { Names } from "../actor.ts";
import type { AliasWords } from "../aliases.ts";
import type { Machine } from "../machines.ts";
import { isPresent, stateOf } from "../nodes.ts";
import { pathRank, pathWords, type CountsByNode } from "../path-counts.ts";
import { setQuery } from "../router.ts";
import { Check } from "../ui/form.tsx";
import { textColumn } from "../ui/list.tsx";
import { isNarrow } from "../ui/narrow.ts";
import { moment, State } from "../ui/parts.tsx";
import type { Column } from "../ui/rows.tsx";
import { timeColumn } from "../ui/time-column.ts";

const first = "name";
const byDefault = ["state", "address", "groups", "paths", "engine", "seen", "revoked"];
/** For phones. */
const byDefaultNarrow = ["state", "address", "groups", "seen"];

const wide = { width: 2.5 };

const usual = () => (isNarrow.value ? byDefaultNarrow : byDefault);

/** Cells are made without components: a page of rows is drawn for each step of scrolling. */
export function allColumns(
  names: Names,
  { paths, aliases }: { paths: CountsByNode; aliases: AliasWords },
  isRevoked: boolean,
): readonly Column<Machine>[] {
  const standing = (machine: Machine) => stateOf({ ...machine, broken: paths.get(machine.id)?.broken });
  const owner = ({ ownerId }: Machine) => (ownerId === null ? "" : (names.get(ownerId) ?? `user ${ownerId}`));
  const roles = ({ is_lighthouse, is_relay, subnets }: Machine) =>
    [is_lighthouse && "lighthouse", is_relay && "relay", subnets.length > 0 && "router"]
      .filter(Boolean)
      .join(", ");
  return [
    { ...textColumn<Machine>(first, "Name", 3, ({ name }) => name), sortKey: ({ nameKey }) => nameKey },
    {
      ...textColumn<Machine>("state", "State", 2.6, (machine) => standing(machine)[1]),
      cell(machine) {
        const [name, word] = standing(machine);
        return State({ name, word });
      },
    },
    textColumn<Machine>("address", "Address", 3, ({ ip_address }) => ip_address),
    textColumn<Machine>("aliases", "Aliases", 3, ({ id }) => aliases.get(id) ?? ""),
    textColumn<Machine>("groups", "Groups", 3, ({ groups }) => groups.join(", ")),
    textColumn<Machine>("roles", "Roles", 2, roles),
    textColumn<Machine>("networks", "Networks behind it", 2, ({ subnets }) => subnets.join(", ")),
    textColumn<Machine>("owner", "Owner", 2, owner),
    textColumn<Machine>("system", "System", 2, ({ platform }) => platform ?? ""),
    {
      key: "paths",
      title: "Paths",
      width: 3,
      text: ({ id }) => pathWords(paths.get(id)),
      cell(machine) {
        const counted = paths.get(machine.id);
        const words = pathWords(counted);
        if (!counted || !words) return <span class="quiet">-</span>;
        if (!isPresent(machine))
          return (
            <span class="quiet">
              {words}, {moment(machine.seenAt)}
            </span>
          );
        const { broken, relayed, direct } = counted;
        const state = broken ? "attention" : relayed ? "limited" : direct ? "online" : "away";
        return State({ name: state, word: words });
      },
      compare: (a, b) => pathRank(paths.get(a.id)) - pathRank(paths.get(b.id)),
      isEmpty: (machine) => !isPresent(machine),
    },
    textColumn<Machine>("engine", "Engine", 1.5, ({ overlay_version }) => overlay_version ?? ""),
    textColumn<Machine>("agent", "Agent", 1.5, ({ agent_version }) => agent_version ?? ""),
    textColumn<Machine>("configuration", "Configuration", 2, ({ isBehind }) =>
      isBehind ? "not applied yet" : "applied",
    ),
    timeColumn<Machine>("ends", "Certificate ends", ({ endsAt }) => endsAt, wide),
    timeColumn<Machine>("seen", "Last check-in", ({ seenAt }) => seenAt, wide),
    ...(isRevoked ? [timeColumn<Machine>("revoked", "Revoked", ({ revokedAt }) => revokedAt, wide)] : []),
  ];
}

/** Whether the column is among those that `chosenColumns` gives. */
export const isChosen = (key: string, asked: string): boolean => chosenColumns([{ key }], asked).length > 0;

/** `asked`: keys of the address, separated by commas; "" means the usual ones. The name is always first. */
export function chosenColumns<T extends { key: string }>(all: readonly T[], asked: string): readonly T[] {
  const keys = asked === "" ? usual() : asked.split(",");
  return all.filter(({ key }) => key === first || keys.includes(key));
}

type ChoiceProps = { all: readonly Column<Machine>[]; chosen: readonly Column<Machine>[] };

export function ColumnChoice({ all, chosen }: ChoiceProps) {
  const keys = chosen.map(({ key }) => key).filter((key) => key !== first);
  const set = (key: string, isOn: boolean) => {
    const ordered = all.map((each) => each.key).filter((each) => (each === key ? isOn : keys.includes(each)));
    // Only the name: stored as a word that is no column, because an empty list means the usual columns.
    const text = ordered.length === 0 ? first : ordered.join(",");
    const same = usual().filter((key) => all.some((each) => each.key === key));
    setQuery({ columns: text === same.join(",") ? undefined : text });
  };
  const press = ({ key, currentTarget }: { key: string; currentTarget: HTMLDetailsElement }) => {
    if (key === "Escape") currentTarget.open = false;
  };
  return (
    <details class="menu" onKeyDown={press}>
      <summary class="button">Columns</summary>
      <div class="menu-list fields">
        {all
          .filter(({ key }) => key !== first)
          .map(({ key, title }) => (
            <Check
              key={key}
              label={title}
              checked={keys.includes(key)}
              set={(isOn: boolean) => set(key, isOn)}
            />
          ))}
      </div>
    </details>
  );
}
