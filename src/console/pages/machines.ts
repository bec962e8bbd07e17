// All machines of the organization.

import { useMemo, useState } from "preact/hooks";
import { html } from "../html.ts";
import type { Machine } from "../machines.ts";
import { mayAdminister, slug } from "../me.ts";
import { useMemberNames } from "../member-names.ts";
import { useNodes } from "../node-list.ts";
import { pathOf, query, setQuery } from "../router.ts";
import { ordered } from "../ui/order.ts";
import { Empty, Failure, Loading, valueOf } from "../ui/parts.ts";
import { Rows } from "../ui/rows.ts";
import { searchWords } from "../search.ts";
import { Export, Search } from "../ui/tools.ts";
import { allColumns, chosenColumns, ColumnChoice } from "./machine-columns.ts";
import { Selected } from "./selected-machines.ts";

export function Machines() {
  const own = slug.value ?? "";
  const isRevoked = query.value.get("show") === "revoked";
  const { data: nodes, total, error } = useNodes(isRevoked);
  const [selected, select] = useState<ReadonlySet<number | string>>(new Set());
  const order = query.value.get("order") ?? "name";
  const names = useMemberNames(own);
  const every = useMemo(() => allColumns(names), [names]);
  const asked = query.value.get("columns") ?? "";
  const columns = useMemo(() => chosenColumns(every, asked), [every, asked]);
  // Typing in the search filters what is in order already.
  const all = useMemo(() => ordered(nodes ?? [], every, order), [nodes, every, order]);
  const search = query.value.get("search") ?? "";
  const shown = useMemo(() => {
    const words = searchWords(search);
    return words.length === 0 ? all : all.filter((node) => words.every((word) => node.words.includes(word)));
  }, [all, search]);
  const chosen = useMemo(() => (nodes ?? []).filter(({ id }) => selected.has(id)), [nodes, selected]);
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
        onChange=${(event: Event) => {
          select(new Set());
          setQuery({ show: valueOf(event) });
        }}
      >
        <option value="">Members</option>
        <option value="revoked">Revoked</option>
      </select>
      <span class="quiet" role="status">${shown.length} of ${total}</span>
      <${ColumnChoice} all=${every} chosen=${columns} />
      <${Export} file=${`${own}-machines.csv`} items=${shown} columns=${columns} />
      ${
        mayAdminister.value
          ? html`<a class="button" href=${pathOf(own, "machines", "waiting")}>Approval</a>
              <a class="button primary" href=${pathOf(own, "machines", "add")}>Add a machine</a>`
          : null
      }
    </div>
    ${mayAdminister.value ? html`<${Selected} machines=${chosen} clear=${() => select(new Set())} />` : null}
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
            selected=${mayAdminister.value ? selected : undefined}
            select=${mayAdminister.value ? select : undefined}
          />`
    }`;
}
