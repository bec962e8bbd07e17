// All machines of the organization.

import { useMemo, useState } from "preact/hooks";
import type { Node } from "../../protocol.ts";
import { html } from "../html.ts";
import { mayAdminister, slug } from "../me.ts";
import { useNodes } from "../node-list.ts";
import { stateOf } from "../nodes.ts";
import { pathOf, query, setQuery } from "../router.ts";
import { textColumn } from "../ui/list.ts";
import { Empty, Failure, Loading, State, valueOf, When } from "../ui/parts.ts";
import { ordered } from "../ui/order.ts";
import { Rows, type Column } from "../ui/rows.ts";
import { Export, Search, searched } from "../ui/tools.ts";

const columns: readonly Column<Node>[] = [
  textColumn("name", "Name", 3, ({ name }) => name),
  {
    ...textColumn<Node>("state", "State", 2, (node) => stateOf(node)[1]),
    cell: (node) => html`<${State} name=${stateOf(node)[0]} word=${stateOf(node)[1]} />`,
  },
  textColumn<Node>("address", "Address", 2, ({ ip_address }) => ip_address),
  textColumn<Node>("groups", "Groups", 3, ({ groups }) => groups.join(", ")),
  textColumn<Node>("engine", "Engine", 1, ({ overlay_version }) => overlay_version ?? ""),
  {
    ...textColumn<Node>("seen", "Last check-in", 2, ({ last_checkin_at }) => last_checkin_at ?? ""),
    cell: ({ last_checkin_at }) => html`<${When} at=${last_checkin_at} />`,
  },
];

export function Machines() {
  const own = slug.value ?? "";
  const isRevoked = query.value.get("show") === "revoked";
  const { data: nodes, total, error } = useNodes(isRevoked);
  const [selected, select] = useState<ReadonlySet<number | string>>(new Set());
  const order = query.value.get("order") ?? "name";
  const shown = useMemo(() => {
    const isFound = searched();
    const found = (nodes ?? []).filter(({ name, ip_address, groups }) =>
      isFound([name, ip_address, ...groups].join("\n")),
    );
    return ordered(found, columns, order);
  }, [nodes, query.value.get("search"), order]);
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
            keyOf=${({ id }: Node) => id}
            linkOf=${({ id }: Node) => pathOf(own, "machines", id)}
            order=${order}
            setOrder=${(next: string) => setQuery({ order: next === "name" ? undefined : next })}
            selected=${selected}
            select=${select}
          />`
    }`;
}
