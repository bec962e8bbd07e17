// All machines of the organization.

import { useMemo, useState } from "preact/hooks";
import type { Node } from "../../protocol.ts";
import { org } from "../api.ts";
import { html } from "../html.ts";
import { mayAdminister, slug } from "../me.ts";
import { stateOf } from "../nodes.ts";
import { useList } from "../resource.ts";
import { pathOf, query, setQuery } from "../router.ts";
import { Empty, Failure, Loading, State, valueOf, When } from "../ui/parts.ts";
import { download, ordered, Rows, toCsv, type Column } from "../ui/rows.ts";

const byText = (text: (node: Node) => string) => (a: Node, b: Node) =>
  text(a).localeCompare(text(b), "en", { numeric: true });
const column = (key: string, title: string, width: number, text: (node: Node) => string): Column<Node> => ({
  key,
  title,
  width,
  text,
  cell: (node) => html`<bdi title=${text(node)}>${text(node)}</bdi>`,
  compare: byText(text),
});

const columns: readonly Column<Node>[] = [
  {
    ...column("name", "Name", 3, ({ name }) => name),
    cell: (node) => html`<bdi title=${node.name}>${node.name}</bdi>`,
  },
  {
    ...column("state", "State", 2, (node) => stateOf(node)[1]),
    cell: (node) => html`<${State} name=${stateOf(node)[0]} word=${stateOf(node)[1]} />`,
  },
  column("address", "Address", 2, ({ ip_address }) => ip_address),
  column("groups", "Groups", 3, ({ groups }) => groups.join(", ")),
  column("engine", "Engine", 1, ({ overlay_version }) => overlay_version ?? ""),
  {
    ...column("seen", "Last check-in", 2, ({ last_checkin_at }) => last_checkin_at ?? ""),
    cell: ({ last_checkin_at }) => html`<${When} at=${last_checkin_at} />`,
  },
];

export function Machines() {
  const own = slug.value ?? "";
  const isRevoked = query.value.get("show") === "revoked";
  const { data: nodes, error } = useList<Node>(
    org(own, `nodes/?page_size=1000${isRevoked ? "&revoked=true" : ""}`),
  );
  const [selected, select] = useState<ReadonlySet<number | string>>(new Set());
  const search = query.value.get("search") ?? "";
  const order = query.value.get("order") ?? "name";
  const shown = useMemo(() => ordered(matching(nodes ?? [], search), columns, order), [nodes, search, order]);
  if (nodes === undefined)
    return html`<h1>Machines</h1>
      ${error === undefined ? html`<${Loading} />` : html`<${Failure} error=${error} />`}`;
  return html`<h1>Machines</h1>
    <div class="tools">
      <input
        type="search"
        aria-label="Search machines"
        placeholder="Search"
        value=${search}
        onInput=${(event: Event) => setQuery({ search: valueOf(event) })}
      />
      <select
        aria-label="Which machines"
        class="short"
        value=${isRevoked ? "revoked" : ""}
        onChange=${(event: Event) => setQuery({ show: valueOf(event) })}
      >
        <option value="">Members</option>
        <option value="revoked">Revoked</option>
      </select>
      <span class="quiet" role="status">${shown.length} of ${nodes.length}</span>
      <button type="button" onClick=${() => download(`${own}-machines.csv`, toCsv(shown, columns))}>
        Export CSV
      </button>
      ${mayAdminister.value ? html`<a class="button primary" href=${pathOf(own, "machines", "add")}>Add a machine</a>` : null}
    </div>
    ${
      nodes.length === 0
        ? html`<${Empty} text=${isRevoked ? "No machine is revoked." : "There is no machine yet."} />`
        : html`<${Rows}
            label="Machines"
            items=${shown}
            columns=${columns}
            keyOf=${({ id }: Node) => id}
            linkOf=${({ id }: Node) => pathOf(own, "machines", id)}
            order=${order}
            setOrder=${(next: string) => setQuery({ order: next === "name" ? undefined : next })}
            selected=${selected}
            select=${select}
          />`
    }`;
}

/** Every word must be in the name, an address or a group. */
function matching(nodes: readonly Node[], search: string): readonly Node[] {
  const words = search
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  if (words.length === 0) return nodes;
  return nodes.filter((node) => {
    const text = [node.name, node.ip_address, ...node.groups].join("\n").toLowerCase();
    return words.every((word) => text.includes(word));
  });
}
