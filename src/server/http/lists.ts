// Lists of the API: a JSON array ordered by id, with Link headers (RFC 8288) and X-Total-Count. The query has page,
// page_size and search. A page has a maximum of bytes, too.

import type { ListQuery } from "../../api/values.ts";
import type { Call } from "./route.ts";

/** JSON of one page. A single item may be larger. */
export const maxPageBytes = 1_048_576;
/** Bytes of an item without the columns that `widest` counts: keys, numbers, times, short names. */
const frameBytes = 1024;

/**
 * The query with a page_size that fits. `widest`: the bytes of the longest columns of one item, in the whole list: every
 * page has the same size, so that page numbers neither skip nor repeat items.
 */
export function fitPage(query: ListQuery, widest: number): ListQuery {
  const fitting = Math.max(1, Math.floor(maxPageBytes / (frameBytes + widest)));
  return { ...query, page_size: Math.min(query.page_size, fitting) };
}

/** For `LIMIT $a OFFSET $b`. */
export function pageOf({ page, page_size }: ListQuery): { limit: number; offset: number } {
  return { limit: page_size, offset: (page - 1) * page_size };
}

/** For `lower(column) LIKE $n ESCAPE '!'`. Matches anywhere in the column; an empty search matches everything. */
export function searchPattern({ search }: ListQuery): string {
  return `%${search.toLowerCase().replaceAll(/[!%_]/g, "!$&")}%`;
}

/** `total`: the number of items on all pages. `query`: what the page answers, after `fitPage`. */
export type Page<T> = { items: readonly T[]; total: number; query: ListQuery };

/** The answer to a request for a page. Its links lead to the same path. */
export function listReply<T>(
  call: Pick<Call, "path" | "parameters">,
  publicUrl: string,
  { items, total, query }: Page<T>,
): { body: readonly T[]; headers: Record<string, string> } {
  const path = publicUrl + call.path;
  const others = Object.entries(call.parameters()).filter(
    ([name, value]) => !/^page(_size)?$/.test(name) && value !== "",
  );
  const last = Math.max(1, Math.ceil(total / query.page_size));
  const link = (rel: string, page: number) => {
    const own = { page: String(page), page_size: String(query.page_size) };
    const words = new URLSearchParams([...Object.entries(own), ...others]);
    return `<${path}?${words.toString()}>; rel="${rel}"`;
  };
  const links = [
    ...(query.page < last ? [link("next", query.page + 1)] : []),
    ...(query.page > 1 ? [link("prev", Math.min(query.page - 1, last))] : []),
    link("first", 1),
    link("last", last),
  ];
  return { body: items, headers: { Link: links.join(", "), "X-Total-Count": String(total) } };
}
