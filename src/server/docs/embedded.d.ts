// Files that are embedded into the executable; what is imported is the path under which they can be read.

declare module "swagger-ui-dist/swagger-ui-bundle.js" {
  const path: string;
  export default path;
}
declare module "swagger-ui-dist/swagger-ui.css" {
  const path: string;
  export default path;
}
declare module "redoc/bundles/redoc.standalone.js" {
  const path: string;
  export default path;
}
