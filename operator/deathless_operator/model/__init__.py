"""The custom resources as typed models, and the CRDs made from them. Pure."""
