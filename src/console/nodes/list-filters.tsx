// The filters of the list of nodes: chips and a menu above it, and what an empty list says. The address has what is filtered.

import { nodesApi } from "../../api/nodes.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useMemo } from "preact/hooks";
import type { ListedNode } from "./listed-nodes.ts";
import { mayAddOwn, mayAdminister, currentSlug } from "../contact/me.ts";
import { useNodes } from "./node-list.ts";
import type { CountsByNode } from "./path-counts.ts";
import { registrationsPath } from "../joining/registrations.ts";
import { useList, useTotal } from "../contact/resource.ts";
import { hrefWith, pathOf, query, setQuery } from "../frame/router.ts";
import { now } from "../words/times.ts";
import type { SignName } from "../ui/drawings.ts";
import { Choice } from "../ui/form.tsx";
import { Icon } from "../ui/icon.tsx";
import { Menu } from "../ui/menu.tsx";
import { Empty } from "../ui/parts.tsx";
import { Chip } from "../ui/tag.tsx";
import { chips, countShown, groupsOf, shows } from "./filter.ts";

/** A word of the address, such as `?show=away`; "" if it has none. */
export const addressWord = (name: string) => query.value.get(name) ?? "";

/** Administrators see all paths, members those of their own nodes: without any, the list has no column for them. */
export const seesPaths = ({ size }: CountsByNode) => mayAdminister.value || size > 0;

const signs: Readonly<Record<string, SignName>> = {
  needs: "need",
  waiting: "wait",
  relayed: "part",
  away: "off",
  revoked: "gone",
};

const noNodes: readonly ListedNode[] = [];

type ChipsProps = { slug: string; paths: CountsByNode; ownerName: string };

/** The usual filters with their counts, and what else the address filters by. */
export function Chips({ slug, paths, ownerName }: ChipsProps) {
  const { data: nodes = noNodes, total } = useNodes();
  const waiting = useList(mayAdminister.value ? registrationsPath(slug) : "").data?.length;
  const revoked = useTotal(apiPath(nodesApi.list, { slug }, { page_size: "1", revoked: "true" }));
  const asked = addressWord("show");
  // Only those in sight: each is a walk through all nodes.
  const counts = useMemo(
    () =>
      new Map(
        [...chips.map(([key]) => key), asked].map((key) => [key, countShown(nodes, key, now.value, paths)]),
      ),
    [nodes, asked, paths, now.value],
  );
  // These come from the control plane; the others are counted in the list.
  const totals: Readonly<Record<string, number | undefined>> = { "": total, waiting, revoked };
  const count = (key: string) => (Object.hasOwn(totals, key) ? totals[key] : counts.get(key));
  const shown = chips.filter(
    ([key]) => (key !== "waiting" || mayAdminister.value) && (key !== "relayed" || seesPaths(paths)),
  );
  /** A filter of the menu, which has no chip of its own. */
  const fromMenu = shows.find(([key]) => key === asked && !chips.some(([each]) => each === key));
  return (
    <div class="group tight scroll-x">
      {shown.map(([key, words]) => (
        <Chip
          key={key}
          sign={signs[key]}
          words={words}
          count={count(key)}
          isOn={asked === key}
          href={hrefWith({ show: key, node: undefined })}
        />
      ))}
      {fromMenu === undefined ? null : <ActiveFilter word="show" text={fromMenu[1]} count={count(asked)} />}
      {addressWord("group") === "" ? null : <ActiveFilter word="group" text={addressWord("group")} />}
      {addressWord("owner") === "" ? null : <ActiveFilter word="owner" text={ownerName} />}
    </div>
  );
}

/** A filter that the address has, and that a press takes away. */
const ActiveFilter = ({
  word: key,
  text,
  count,
}: {
  word: string;
  text: string;
  count?: number | undefined;
}) => (
  <a class="chip" href={hrefWith({ [key]: undefined })} aria-current="true">
    <bdi>{text}</bdi>
    {count === undefined ? null : <b>{count}</b>}
    <Icon name="close" />
    <span class="unseen">: remove this filter</span>
  </a>
);

type FiltersProps = { nodes: readonly ListedNode[]; hasPaths: boolean };

export function Filters({ nodes, hasPaths }: FiltersProps) {
  const groups = useMemo(() => groupsOf(nodes), [nodes]);
  const group = addressWord("group");
  const all = group === "" || groups.includes(group) ? groups : [group, ...groups];
  const offered = shows.filter(([key]) => (key !== "broken" && key !== "relayed") || hasPaths);
  return (
    <Menu label="Filter" icon="filter" isPlain={true}>
      <Choice
        label="Which nodes"
        value={addressWord("show")}
        choices={offered}
        set={(show) => setQuery({ show, node: undefined })}
      />
      <Choice
        label="Group"
        value={group}
        choices={[["", "All groups"], ...all.map((name) => [name, name] as const)]}
        set={(name) => setQuery({ group: name })}
      />
      {mayAdminister.value || mayAddOwn.value ? (
        <a href={pathOf(currentSlug.value ?? "", "phones")}>Phones, and how to import them</a>
      ) : null}
    </Menu>
  );
}

/** `isAny`: there are nodes, but the filter leaves none. `isRevoked`: the list is that of revoked nodes. */
type NothingProps = { isAny: boolean; isRevoked: boolean };

/** An empty list. If it is a filter that leaves nothing, offers the other lists. */
export function Nothing({ isAny, isRevoked }: NothingProps) {
  if (!isAny)
    return (
      <Empty
        text={
          isRevoked
            ? "No node is revoked."
            : "There is no node yet. Adding one gives you a line to paste on the machine."
        }
      />
    );
  return (
    <Empty text="No node is like that. The search looks at names, aliases, addresses, groups, engines and systems.">
      <p>
        Not here:{" "}
        <a href={`?show=revoked&search=${encodeURIComponent(addressWord("search"))}`}>revoked nodes</a>
        {mayAdminister.value && (
          <>
            , <a href="?show=waiting">those that wait, or have not come back</a>
          </>
        )}
      </p>
    </Empty>
  );
}
