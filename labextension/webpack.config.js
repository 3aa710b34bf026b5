// Module ids by name: the default ones depend on the folder in which this is built, and so would the committed bundle.
module.exports = { optimization: { moduleIds: 'named', chunkIds: 'named' } };
