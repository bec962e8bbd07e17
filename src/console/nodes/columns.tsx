// The columns that the list of nodes can have, and which of them the address chooses.

import type { Names } from "../activity/actor.ts";
import type { AliasWords } from "../node/aliases.ts";
import type { ListedNode } from "./listed-nodes.ts";
import { isPresent, stateOf, vulnerabilitiesOf, type StateName } from "./states.ts";
import { pathRank, pathWords, type CountsByNode } from "./path-counts.ts";
import { setQuery } from "../frame/router.ts";
import { ago } from "../words/ago.ts";
import { now } from "../words/times.ts";
import { Check } from "../ui/form.tsx";
import { textColumn } from "../ui/lists/list.tsx";
import { Menu } from "../ui/menu.tsx";
import { isNarrow } from "../ui/narrow.ts";
import { State } from "../ui/parts.tsx";
import type { Column } from "../ui/lists/rows.tsx";
import { Tag } from "../ui/tag.tsx";
import { timeColumn } from "../ui/lists/time-column.ts";
import { PathBars } from "../node/path-drawings.tsx";

/** The key of the first column, which is always there. */
const firstKey = "name";
const usualKeys = ["state", "address", "groups", "paths", "engine", "seen", "revoked"];
/** Beside an open node. */
const usualKeysBeside = usualKeys.filter((key) => key !== "engine");
/** On a phone: a card has place for the name and these. */
const usualKeysNarrow = ["state", "address", "paths"];

/** `isBeside`: a node is open beside the list. */
function usualColumns(isBeside: boolean): readonly string[] {
  if (isNarrow.value) return usualKeysNarrow;
  return isBeside ? usualKeysBeside : usualKeys;
}

/** What needs you comes first, what is away or over comes last. */
const ranks: readonly StateName[] = ["attention", "limited", "waiting", "online", "away", "revoked"];

/** The roles of a node, as lists and search name them. */
export function rolesOf({
  is_lighthouse,
  is_relay,
  subnets,
}: Pick<ListedNode, "is_lighthouse" | "is_relay" | "subnets">): string[] {
  return [
    ...(is_lighthouse ? ["lighthouse"] : []),
    ...(is_relay ? ["relay"] : []),
    ...(subnets.length > 0 ? ["router"] : []),
  ];
}

/**
 * All columns. `names`: of users, by id. Cells are made by calls of functions, not as components, which cost more: a page of
 * rows is drawn for each step of scrolling.
 */
export function allColumns(
  names: Names,
  { paths, aliases, cut }: { paths: CountsByNode; aliases: AliasWords; cut: number | undefined },
  isRevoked: boolean,
): readonly Column<ListedNode>[] {
  const shownState = (node: ListedNode) =>
    stateOf({
      ...node,
      cut,
      broken: paths.get(node.id)?.broken,
      finding: node.isCloned === true ? "cloned" : undefined,
    });
  const owner = ({ ownerId }: ListedNode) =>
    ownerId === null ? "" : (names.get(ownerId) ?? `user ${ownerId}`);
  return [
    { ...textColumn<ListedNode>(firstKey, "Name", 2, ({ name }) => name), sortKey: ({ nameKey }) => nameKey },
    {
      ...textColumn<ListedNode>("state", "State", 3, (node) => shownState(node)[1]),
      // The state depends on the paths, which arrive after the nodes: until then its changes are not marked.
      ...(paths.size === 0 ? { isRestless: true as const } : {}),
      // Ranks have one digit, so this sorts by rank, then by name.
      sortKey: (node) => `${ranks.indexOf(shownState(node)[0])} ${node.nameKey}`,
      cell(node) {
        const [name, word] = shownState(node);
        return <span title={word}>{State({ name, word })}</span>;
      },
    },
    {
      ...textColumn<ListedNode>("address", "Address", 2.2, ({ ip_address }) => ip_address),
      cell: ({ ip_address }) => <span class="mono">{ip_address}</span>,
    },
    textColumn<ListedNode>("aliases", "Aliases", 3, ({ id }) => aliases.get(id) ?? ""),
    {
      ...textColumn<ListedNode>("groups", "Groups", 2.9, ({ groups }) => groups.join(", ")),
      cell(node) {
        const roles = rolesOf(node);
        return (
          <span title={[...node.groups, ...roles].join(", ")}>
            {node.groups.map((text) => Tag({ text }))}
            {roles.map((text) => Tag({ text, isAll: true }))}
          </span>
        );
      },
    },
    textColumn<ListedNode>("roles", "Roles", 2, (node) => rolesOf(node).join(", ")),
    textColumn<ListedNode>("networks", "Networks behind it", 2, ({ subnets }) => subnets.join(", ")),
    textColumn<ListedNode>("owner", "Owner", 2, owner),
    textColumn<ListedNode>("system", "System", 2, ({ platform }) => platform ?? ""),
    {
      key: "paths",
      title: "Paths",
      width: 1.6,
      text: ({ id }) => pathWords(paths.get(id)),
      cell(node) {
        const counted = paths.get(node.id);
        const words = pathWords(counted);
        if (counted !== undefined && words !== "" && isPresent(node)) return PathBars({ counted, words });
        const oldWords =
          words === "" ? "none reported" : `${words}, as of ${ago(node.seenAt ?? 0, now.value)}`;
        return (
          <span class="faint" title={oldWords}>
            –
          </span>
        );
      },
      compare: (a, b) => pathRank(paths.get(a.id)) - pathRank(paths.get(b.id)),
      isEmpty: (node) => !isPresent(node),
    },
    {
      ...textColumn<ListedNode>("engine", "Engine", 1.4, ({ overlay_version }) => overlay_version ?? ""),
      cell(node) {
        const version = node.overlay_version ?? "";
        const holes = node.state === "active" ? vulnerabilitiesOf(node) : "";
        if (holes === "") return <bdi class="quiet">{version}</bdi>;
        return <span title={holes}>{State({ name: "attention", word: version })}</span>;
      },
    },
    textColumn<ListedNode>("agent", "Agent", 1.5, ({ agent_version }) => agent_version ?? ""),
    textColumn<ListedNode>("configuration", "Configuration", 2, ({ isBehind }) =>
      isBehind ? "not applied yet" : "applied",
    ),
    timeColumn<ListedNode>("ends", "Certificate ends", ({ endsAt }) => endsAt, { width: 2 }),
    { ...timeColumn<ListedNode>("seen", "Seen", ({ seenAt }) => seenAt, { width: 1.5 }), isNumber: true },
    ...(isRevoked ? [timeColumn<ListedNode>("revoked", "Revoked", ({ revokedAt }) => revokedAt)] : []),
  ];
}

/** Whether the column is among those that `chosenColumns` gives. */
export const isChosen = (key: string, asked: string): boolean => chosenColumns([{ key }], asked).length > 0;

/** `asked`: keys of the address, separated by commas; "" means the usual ones. The name is always first. */
export function chosenColumns<T extends { key: string }>(
  all: readonly T[],
  asked: string,
  isBeside = false,
): readonly T[] {
  const keys = asked === "" ? usualColumns(isBeside) : asked.split(",");
  const chosen = all.filter(({ key }) => key === firstKey || keys.includes(key));
  return isNarrow.value ? chosen.slice(0, 1 + usualKeysNarrow.length) : chosen;
}

type ChoiceProps = { all: readonly Column<ListedNode>[]; asked: string };

export function ColumnChoice({ all, asked }: ChoiceProps) {
  const keys = chosenColumns(all, asked).map(({ key }) => key);
  const set = (key: string, isOn: boolean) => {
    const ordered = all
      .map((each) => each.key)
      .filter((each) => each !== firstKey && (each === key ? isOn : keys.includes(each)));
    // Only the name: stored as a word that is no column, because an empty list means the usual columns.
    const text = ordered.length === 0 ? firstKey : ordered.join(",");
    const usualText = usualColumns(false)
      .filter((each) => all.some((column) => column.key === each))
      .join(",");
    setQuery({ columns: text === usualText ? undefined : text });
  };
  return (
    <Menu label="Columns" icon="columns" isPlain={true}>
      {all
        .filter(({ key }) => key !== firstKey)
        .map(({ key, title }) => (
          <Check key={key} label={title} checked={keys.includes(key)} set={(isOn) => set(key, isOn)} />
        ))}
    </Menu>
  );
}
