// All machines of the organization.

import { useMemo, useState } from "preact/hooks";
import { html } from "../html.ts";
import { mayAdminister, slug } from "../me.ts";
import { useNodes } from "../node-list.ts";
import type { Machine } from "../machines.ts";
import { stateOf } from "../nodes.ts";
import { pathOf, query, setQuery } from "../router.ts";
import { utc } from "../times.ts";
import { textColumn } from "../ui/list.ts";
import { Empty, Failure, Loading, moment, State, valueOf } from "../ui/parts.ts";
import { ordered } from "../ui/order.ts";
import { Rows, type Column } from "../ui/rows.ts";
import { Export, Search, searchWords } from "../ui/tools.ts";

/** Cells are made without components: a page of rows is drawn for each step of scrolling. */
const columns: readonly Column<Machine>[] = [
  { ...textColumn<Machine>("name", "Name", 3, ({ name }) => name), sortKey: ({ nameKey }) => nameKey },
  {
    ...textColumn<Machine>("state", "State", 2, (node) => stateOf(node)[1]),
    cell(node) {
      const [name, word] = stateOf(node);
      return State({ name, word });
    },
  },
  textColumn<Machine>("address", "Address", 2, ({ ip_address }) => ip_address),
  textColumn<Machine>("groups", "Groups", 3, ({ groups }) => groups.join(", ")),
  textColumn<Machine>("engine", "Engine", 1, ({ overlay_version }) => overlay_version ?? ""),
  {
    key: "seen",
    title: "Last check-in",
    width: 2,
    text: ({ seenAt }) => (seenAt === null ? "" : utc(seenAt)),
    cell: ({ seenAt }) => moment(seenAt),
    compare: (a, b) => (a.seenAt ?? 0) - (b.seenAt ?? 0),
  },
];

export function Machines() {
  const own = slug.value ?? "";
  const isRevoked = query.value.get("show") === "revoked";
  const { data: nodes, total, error } = useNodes(isRevoked);
  const [selected, select] = useState<ReadonlySet<number | string>>(new Set());
  const order = query.value.get("order") ?? "name";
  // Typing in the search filters what is in order already.
  const all = useMemo(() => ordered(nodes ?? [], columns, order), [nodes, order]);
  const search = query.value.get("search") ?? "";
  const shown = useMemo(() => {
    const words = searchWords(search);
    return words.length === 0 ? all : all.filter((node) => words.every((word) => node.words.includes(word)));
  }, [all, search]);
  if (nodes === undefined)
    return html`<h1>Machines</h1>
      ${error === undefined ? html`<${Loading} />` : html`<${Failure} error=${error} />`}`;
  return html`<h1>Machines</h1>
    <div class="tools">
      <${Search} label="Search machines" />
      <select
        aria-label="Which machines"
        class="short"
        value=${isRevoked ? "revoked" : ""}
        onChange=${(event: Event) => setQuery({ show: valueOf(event) })}
      >
        <option value="">Members</option>
        <option value="revoked">Revoked</option>
      </select>
      <span class="quiet" role="status">${shown.length} of ${total}</span>
      <${Export} file=${`${own}-machines.csv`} items=${shown} columns=${columns} />
      ${
        mayAdminister.value
          ? html`<a class="button" href=${pathOf(own, "machines", "waiting")}>Approval</a>
              <a class="button primary" href=${pathOf(own, "machines", "add")}>Add a machine</a>`
          : null
      }
    </div>
    ${
      nodes.length === 0
        ? html`<${Empty} text=${isRevoked ? "No machine is revoked." : "There is no machine yet."} />`
        : html`<${Rows}
            label="Machines"
            items=${shown}
            columns=${columns}
            keyOf=${({ id }: Machine) => id}
            linkOf=${({ id }: Machine) => pathOf(own, "machines", id)}
            order=${order}
            setOrder=${(next: string) => setQuery({ order: next === "name" ? undefined : next })}
            selected=${selected}
            select=${select}
          />`
    }`;
}
