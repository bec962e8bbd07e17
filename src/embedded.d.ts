// Files that are embedded in the executable. An import gives the path for reading the file; of the install script, its text.

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
declare module "*/install" {
  const text: string;
  export default text;
}
